#include "services/compute/service/kv_client.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "common/base/log.h"
#include "common/rpc/bulk.h"
#include "common/rpc/channel.h"

namespace strata::compute {
namespace {

using grpc::internal::RpcMethod;
using std::chrono::milliseconds;

// gRPC costs grow beyond this message size, and far below it the number of messages dominates.
constexpr size_t kChunkBytes = 1 << 20;
constexpr milliseconds kSaveTimeout{60'000};
constexpr milliseconds kRestoreTimeout{120'000};
constexpr uint64_t kMaxBlockBytes = uint64_t{1} << 30;

// Of the blocks of a plan, in the order in which they come.
std::vector<uint64_t> SizesOf(const v1::RestorePlan& plan) {
  std::vector<uint64_t> sizes;
  for (const v1::BlockRef& block : plan.blocks()) sizes.push_back(block.bytes());
  for (const v1::MovedRun& run : plan.runs()) {
    for (const v1::BlockRef& block : run.blocks()) sizes.push_back(block.bytes());
  }
  if (plan.has_tail()) sizes.push_back(plan.tail().bytes());
  return sizes;
}

}  // namespace

KvClient::KvClient(std::shared_ptr<grpc::Channel> channel, v1::ModelFingerprint fingerprint,
                   v1::StateLayout layout, milliseconds patience)
    : patience_(patience),
      channel_(std::move(channel)),
      fingerprint_(std::move(fingerprint)),
      layout_(std::move(layout)),
      thread_([this] { Run(); }) {}

KvClient::~KvClient() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void KvClient::Restore(const v1::RestorePlan& plan, std::string_view request_id,
                       absl::FunctionRef<bool(std::vector<std::byte>)> take) {
  grpc::ClientContext context;
  rpc::PrepareCall(context, request_id, kRestoreTimeout);
  v1::RestoreRequest request;
  request.set_request_id(std::string(request_id));
  *request.mutable_plan() = plan;
  // A plain call could wait for a message until the call's deadline only.
  grpc::CompletionQueue events;
  bool stalled = false;
  const auto succeeds = [&] {
    void* tag = nullptr;
    bool ok = false;
    const auto late = std::chrono::system_clock::now() + patience_;
    if (events.AsyncNext(&tag, &ok, late) != grpc::CompletionQueue::TIMEOUT) return ok;
    LogWarning("request ", A(request_id), ": kvstore sends nothing for ", patience_.count(),
               " ms: reading the rest of the prompt instead");
    stalled = true;
    context.TryCancel();
    events.Next(&tag, &ok);  // what is under way refers to this stack
    return false;
  };
  const RpcMethod method("/strata.v1.KvStore/Restore", RpcMethod::SERVER_STREAMING, channel_);
  const std::unique_ptr<grpc::ClientAsyncReader<grpc::ByteBuffer>> reader(
      grpc::internal::ClientAsyncReaderFactory<grpc::ByteBuffer>::Create(
          channel_.get(), &events, method, &context, request, /*start=*/true, nullptr));
  grpc::ByteBuffer buffer;
  v1::StateChunk chunk;
  std::vector<std::span<const std::byte>> data;
  // What a block's size will be: growing it would copy it several times over.
  const auto announced = [&, sizes = SizesOf(plan)](uint32_t index) {
    return index < sizes.size() ? std::min(sizes[index], kMaxBlockBytes) : 0;
  };
  std::vector<std::byte> block;
  uint32_t expected = 0;
  bool wanted = succeeds();
  while (wanted) {
    reader->Read(&buffer, nullptr);
    if (!succeeds()) break;
    // Blocks come in order and chunks of a block without gaps; anything else ends the restore.
    if (!rpc::DecodeBulk(buffer, v1::StateChunk::kDataFieldNumber, &chunk, &data) ||
        chunk.block() != expected || chunk.offset() != block.size() ||
        block.size() + buffer.Length() > kMaxBlockBytes) {
      LogWarning("kvstore sent chunk ", chunk.block(), "+", chunk.offset(), ", expected ", expected,
                 "+", block.size(), ": reading the rest of the prompt instead");
      break;
    }
    if (block.empty()) block.reserve(announced(expected));
    for (const auto& piece : data) block.insert(block.end(), piece.begin(), piece.end());
    if (!chunk.last()) continue;
    wanted = take(std::exchange(block, {}));
    ++expected;
  }
  context.TryCancel();  // no effect after a complete stream
  grpc::Status status;
  reader->Finish(&status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  events.Next(&tag, &ok);
  connected_ = !stalled && status.error_code() != grpc::StatusCode::UNAVAILABLE;
}

void KvClient::Save(SavedBlock block) {
  {
    const std::lock_guard lock(mutex_);
    if (queued_bytes_ + block.bytes.size() > kMaxQueuedBytes) {
      if (dropped_++ == 0) LogWarning("kvstore is slower than compute: state blocks are not saved");
      return;
    }
    dropped_ = 0;
    queued_bytes_ += block.bytes.size();
    queue_.push_back(std::make_shared<const SavedBlock>(std::move(block)));
  }
  changed_.notify_all();
}

void KvClient::Run() {
  for (;;) {
    std::deque<std::shared_ptr<const SavedBlock>> batch;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !queue_.empty() || stopping_; });
      if (queue_.empty()) return;  // everything was sent: now stop
      const std::string tenant = queue_.front()->tenant;
      while (!queue_.empty() && queue_.front()->tenant == tenant) {
        batch.push_back(std::move(queue_.front()));
        queue_.pop_front();
      }
    }
    const bool sent = SendBatch(batch);
    if (sent != connected_.exchange(sent)) {
      if (sent) {
        LogInfo("kvstore is connected");
      } else {
        LogWarning("kvstore does not answer: answers go on, nothing is saved");
      }
    }
    const std::lock_guard lock(mutex_);
    for (const auto& block : batch) queued_bytes_ -= block->bytes.size();
    if (!sent && stopping_) return;
  }
}

bool KvClient::SendBatch(const std::deque<std::shared_ptr<const SavedBlock>>& batch) {
  grpc::ClientContext context;
  rpc::PrepareCall(context, "", kSaveTimeout);
  v1::SaveResponse response;
  const RpcMethod method("/strata.v1.KvStore/Save", RpcMethod::CLIENT_STREAMING, channel_);
  const std::unique_ptr<grpc::ClientWriter<grpc::ByteBuffer>> writer(
      grpc::internal::ClientWriterFactory<grpc::ByteBuffer>::Create(channel_.get(), method,
                                                                    &context, &response));
  v1::SaveRequest message;
  v1::StateKey& key = *message.mutable_key();
  *key.mutable_fingerprint() = fingerprint_;
  *key.mutable_layout() = layout_;
  key.set_tenant(batch.front()->tenant);
  const auto write = [&](std::shared_ptr<const SavedBlock> owner, std::span<const std::byte> data) {
    return writer->Write(
        rpc::EncodeBulk(message, v1::SaveRequest::kDataFieldNumber, std::move(owner), data));
  };
  bool ok = write(nullptr, {});
  for (const auto& owner : batch) {
    const SavedBlock& block = *owner;
    for (size_t offset = 0; ok && offset < block.bytes.size(); offset += kChunkBytes) {
      message.Clear();
      if (offset == 0) {
        v1::SaveRequest::Block& header = *message.mutable_block();
        header.set_first_token(block.first_token);
        header.mutable_tokens()->mutable_ids()->Assign(block.tokens.begin(), block.tokens.end());
        header.set_parent(block.parent.ToString());
        header.set_bytes(block.bytes.size());
        header.set_lineage(static_cast<v1::Lineage>(block.lineage));
        header.set_checkpoint(block.checkpoint);
      }
      const size_t count = std::min(kChunkBytes, block.bytes.size() - offset);
      ok = write(owner, std::span(block.bytes).subspan(offset, count));
    }
  }
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  if (!status.ok() && status.error_code() != grpc::StatusCode::UNAVAILABLE) {
    LogWarning("kvstore refused state blocks: ", status.error_message());
  }
  return status.ok();
}

}  // namespace strata::compute
