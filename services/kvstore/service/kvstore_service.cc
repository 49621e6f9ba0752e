#include "services/kvstore/service/kvstore_service.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <numeric>
#include <optional>
#include <vector>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/rpc/bulk.h"
#include "common/rpc/channel.h"

namespace strata::kvstore {
namespace {

constexpr size_t kChunkBytes = 1 << 20;
constexpr uint32_t kMaxBlockTokens = 65536;
constexpr uint32_t kMaxListTokens = 1024;
// A splice that saves less is not made: reading 256 tokens takes a home PC less than a second (the
// 37,000 of an agent's first prompt take it 100 s), and exact is better than approximate.
constexpr uint32_t kMinMovedTokens = 256;
constexpr uint64_t kVerifyStep = 64;  // blocks between two reports

absl::StatusOr<BlockId> RootOf(const v1::StateKey& key) {
  if (key.fingerprint().hash().empty() || key.layout().hash().empty()) {
    return absl::InvalidArgumentError("the state key lacks a model fingerprint or a layout hash");
  }
  return state::RootId(key.fingerprint().hash(), key.layout().hash(), key.tenant());
}

std::vector<BlockId> ParseIds(const google::protobuf::RepeatedPtrField<std::string>& raw) {
  std::vector<BlockId> ids;
  for (const std::string& bytes : raw) {
    if (const std::optional<BlockId> id = state::BlockIdFromRaw(bytes)) ids.push_back(*id);
  }
  return ids;
}

// All layers of all components can follow their tokens elsewhere.
bool IsMovable(const v1::StateLayout& layout) {
  return layout.components_size() > 0 &&
         std::all_of(layout.components().begin(), layout.components().end(),
                     [](const v1::StateComponent& c) {
                       return c.kind() == v1::StateComponent::ROWS && c.movable();
                     });
}

// Rows of every component are cut at multiples of this many tokens.
uint32_t StrideOf(const v1::StateLayout& layout) {
  uint32_t stride = 1;
  for (const v1::StateComponent& c : layout.components()) {
    if (c.stride() > 1) stride = std::lcm(stride, c.stride());
  }
  return stride;
}

// State of this layout can be cut: it has no component that is valid at one position only.
bool IsRowsOnly(const v1::StateLayout& layout) {
  return std::all_of(
      layout.components().begin(), layout.components().end(),
      [](const v1::StateComponent& c) { return c.kind() == v1::StateComponent::ROWS; });
}

state::Lineage LineageOf(v1::Lineage lineage) {
  return lineage == v1::LINEAGE_EXACT  ? state::Lineage::kExact
         : lineage == v1::LINEAGE_SAFE ? state::Lineage::kSafe
                                       : state::Lineage::kFast;
}

// The least exact state that a request of this mode accepts.
state::Lineage AcceptedBy(v1::SpliceMode mode) {
  return mode == v1::SPLICE_FAST   ? state::Lineage::kFast
         : mode == v1::SPLICE_SAFE ? state::Lineage::kSafe
                                   : state::Lineage::kExact;
}

void SetBlock(const PlannedBlock& block, v1::BlockRef& ref) {
  ref.set_id(block.id.ToString());
  ref.set_first_token(block.first_token);
  ref.set_tokens(block.tokens);
  ref.set_bytes(block.bytes);
  ref.set_lineage(static_cast<v1::Lineage>(block.lineage));
  ref.set_checkpoint(block.checkpoint);
}

template <typename Blocks>
void SetBlocks(const std::vector<PlannedBlock>& blocks, Blocks& out) {
  for (const PlannedBlock& block : blocks) SetBlock(block, *out.Add());
}

std::string ProfileKey(const std::string& name, const v1::ModelFingerprint& fingerprint) {
  return absl::StrCat(name, "/", fingerprint.hash());
}

// Puts the messages of one Save stream together into blocks.
class BlockAssembler {
 public:
  explicit BlockAssembler(BlockStore& store, v1::SaveResponse& response)
      : store_(store), response_(response) {}

  // `data`: the message's.
  absl::Status Take(const v1::SaveRequest& message,
                    std::span<const std::span<const std::byte>> data) {
    if (message.has_key()) {
      STRATA_ASSIGN_OR_RETURN(root_, RootOf(message.key()));
      block_tokens_ = static_cast<int>(message.key().layout().block_tokens());
      checkpoint_kind_ = IsRowsOnly(message.key().layout()) ? Kind::kTail : Kind::kCheckpoint;
      return absl::OkStatus();
    }
    if (!root_) return absl::InvalidArgumentError("the first message must carry the state key");
    if (message.has_block()) STRATA_RETURN_IF_ERROR(Begin(message.block()));
    if (!open_) return absl::InvalidArgumentError("data without a block header");
    for (const std::span<const std::byte> piece : data) {
      if (filled_ + piece.size() > header_.bytes()) {
        return absl::InvalidArgumentError(absl::StrCat("block at token ", header_.first_token(),
                                                       " has more than the announced ",
                                                       header_.bytes(), " bytes"));
      }
      std::memcpy(data_.data() + filled_, piece.data(), piece.size());
      filled_ += piece.size();
    }
    return filled_ == header_.bytes() ? Store() : absl::OkStatus();
  }

  absl::Status End() const {
    if (!open_) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("the stream ended inside the block at token ",
                                                   header_.first_token(), ": it is not stored"));
  }

 private:
  absl::Status Begin(const v1::SaveRequest::Block& header) {
    STRATA_RETURN_IF_ERROR(End());
    const std::optional<BlockId> parent = state::BlockIdFromRaw(header.parent());
    const int tokens = header.tokens().ids_size();
    const bool fits = header.checkpoint()
                          ? tokens < block_tokens_
                          : tokens > 0 && static_cast<uint32_t>(tokens) <= kMaxBlockTokens;
    if (!parent || !fits || header.bytes() == 0 ||
        header.bytes() > KvStoreService::kMaxBlockBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("bad header of a ", header.checkpoint() ? "checkpoint" : "block",
                       ": parent of ", header.parent().size(), " bytes, ", tokens, " tokens, ",
                       header.bytes(), " bytes of data"));
    }
    header_ = header;
    parent_ = *parent;
    if (data_.size() < header.bytes()) data_ = AlignedBuffer(header.bytes());
    filled_ = 0;
    open_ = true;
    return absl::OkStatus();
  }

  absl::Status Store() {
    open_ = false;
    const auto& ids = header_.tokens().ids();
    const absl::StatusOr<bool> stored = store_.Save(
        *root_, parent_, header_.first_token(),
        std::span(ids.data(), static_cast<size_t>(ids.size())), {data_.data(), filled_},
        LineageOf(header_.lineage()), header_.checkpoint() ? checkpoint_kind_ : Kind::kBlock);
    // A block whose parent was evicted meanwhile is of no use; the stream goes on.
    if (!stored.ok() && !absl::IsFailedPrecondition(stored.status())) return stored.status();
    if (stored.ok() && *stored) {
      response_.set_stored(response_.stored() + 1);
    } else {
      response_.set_known(response_.known() + 1);
    }
    return absl::OkStatus();
  }

  BlockStore& store_;
  v1::SaveResponse& response_;
  std::optional<BlockId> root_;
  int block_tokens_ = 0;
  Kind checkpoint_kind_ = Kind::kTail;
  v1::SaveRequest::Block header_;
  BlockId parent_;
  AlignedBuffer data_;  // so that the drive can take it from here
  size_t filled_ = 0;
  bool open_ = false;
};

}  // namespace

KvStoreService::KvStoreService(BlockStore& store, std::string path, uint32_t min_run_tokens)
    : store_(store), path_(std::move(path)), min_run_tokens_(min_run_tokens) {
  const auto* methods = v1::StateChunk::descriptor()->file()->FindServiceByName("KvStore");
  MarkMethodStreamed(
      methods->FindMethodByName("Restore")->index(),
      new grpc::internal::BidiStreamingHandler<KvStoreService, v1::RestoreRequest,
                                               grpc::ByteBuffer>(
          [](KvStoreService* service, grpc::ServerContext* context, RestoreStream* stream) {
            return service->RestoreBulk(context, stream);
          },
          this));
  MarkMethodStreamed(
      methods->FindMethodByName("Save")->index(),
      new grpc::internal::BidiStreamingHandler<KvStoreService, grpc::ByteBuffer, v1::SaveResponse>(
          [](KvStoreService* service, grpc::ServerContext* context, SaveStream* stream) {
            return service->SaveBulk(context, stream);
          },
          this));
}

grpc::Status KvStoreService::Plan(grpc::ServerContext*, const v1::PlanRequest* request,
                                  v1::PlanResponse* response) {
  const absl::StatusOr<BlockId> root = RootOf(request->key());
  if (!root.ok()) return rpc::ToGrpc(root.status());
  const auto& ids = request->tokens().ids();
  const auto& lines = request->line_starts();
  const v1::StateLayout& layout = request->key().layout();
  PlanQuery query;
  query.root = *root;
  query.tokens = std::span(ids.data(), static_cast<size_t>(ids.size()));
  query.block_tokens = layout.block_tokens();
  query.cut = IsRowsOnly(layout) ? StrideOf(layout) : 0;
  query.accept = AcceptedBy(request->splice());
  query.move = query.accept != state::Lineage::kExact && IsMovable(layout);
  query.line_starts = std::span(lines.data(), static_cast<size_t>(lines.size()));
  query.align.min_run = min_run_tokens_;
  query.align.min_moved = kMinMovedTokens;
  query.align.stride = StrideOf(layout);
  query.dry_run = request->dry_run();
  const StatePlan plan = store_.Plan(query);
  v1::RestorePlan& out = *response->mutable_plan();
  *out.mutable_key() = request->key();
  SetBlocks(plan.blocks, *out.mutable_blocks());
  if (plan.tail) SetBlock(*plan.tail, *out.mutable_tail());
  out.set_reused_tokens(plan.reused_tokens);
  out.set_splice(request->splice());
  for (const PlannedRun& run : plan.runs) {
    v1::MovedRun& moved = *out.add_runs();
    moved.set_first_token(run.first_token);
    moved.set_tokens(run.tokens);
    moved.set_old_first_token(run.old_first_token);
    SetBlocks(run.blocks, *moved.mutable_blocks());
  }
  response->set_first_different_token(plan.first_different_token);
  if (plan.conversation) response->set_conversation(plan.conversation->ToString());
  response->mutable_stored_instead()->mutable_ids()->Assign(plan.stored_instead.begin(),
                                                            plan.stored_instead.end());
  return grpc::Status::OK;
}

grpc::Status KvStoreService::RestoreBulk(grpc::ServerContext* context, RestoreStream* stream) {
  v1::RestoreRequest request;
  if (!stream->Read(&request)) return grpc::Status::CANCELLED;
  const RequestScope scope(request.request_id());
  std::vector<const v1::BlockRef*> refs;
  for (const v1::BlockRef& ref : request.plan().blocks()) refs.push_back(&ref);
  for (const v1::MovedRun& run : request.plan().runs()) {
    for (const v1::BlockRef& ref : run.blocks()) refs.push_back(&ref);
  }
  if (request.plan().has_tail()) refs.push_back(&request.plan().tail());
  // The drive reads a block while the one before it is sent.
  const auto read = [&](size_t i) -> absl::StatusOr<BlockData> {
    const std::optional<BlockId> id = state::BlockIdFromRaw(refs[i]->id());
    if (!id) return absl::InvalidArgumentError("a block id has not 16 bytes");
    return store_.Read(*id);
  };
  std::future<absl::StatusOr<BlockData>> next;
  for (size_t i = 0; i < refs.size(); ++i) {
    if (context->IsCancelled()) return grpc::Status::CANCELLED;
    absl::StatusOr<BlockData> data = i == 0 ? read(i) : next.get();
    if (absl::IsInvalidArgument(data.status())) return rpc::ToGrpc(data.status());
    if (!data.ok()) {
      // Fewer blocks is a valid answer: the caller reads the rest of the prompt.
      LogInfo("restore ends after ", i, " of ", refs.size(), " blocks: ", data.status().message());
      return grpc::Status::OK;
    }
    if (i + 1 < refs.size()) next = std::async(std::launch::async, read, i + 1);
    const auto block = std::make_shared<const BlockData>(*std::move(data));
    const auto bytes = std::as_bytes(std::span(block->view()));
    for (size_t offset = 0; offset < bytes.size(); offset += kChunkBytes) {
      v1::StateChunk chunk;
      chunk.set_block(static_cast<uint32_t>(i));
      chunk.set_offset(offset);
      chunk.set_last(offset + kChunkBytes >= bytes.size());
      const auto part = bytes.subspan(offset, std::min(kChunkBytes, bytes.size() - offset));
      if (!stream->Write(rpc::EncodeBulk(chunk, v1::StateChunk::kDataFieldNumber, block, part))) {
        return grpc::Status::CANCELLED;
      }
    }
  }
  return grpc::Status::OK;
}

grpc::Status KvStoreService::SaveBulk(grpc::ServerContext*, SaveStream* stream) {
  v1::SaveResponse response;
  BlockAssembler assembler(store_, response);
  absl::Status status;
  v1::SaveRequest message;
  std::vector<std::span<const std::byte>> data;
  for (grpc::ByteBuffer buffer; status.ok() && stream->Read(&buffer);) {
    status = rpc::DecodeBulk(buffer, v1::SaveRequest::kDataFieldNumber, &message, &data)
                 ? assembler.Take(message, data)
                 : absl::InvalidArgumentError("this is no SaveRequest");
  }
  if (status.ok()) status = assembler.End();
  // Also what came before an error, and what another client is saving at the moment: whoever is
  // told that a block is known relies on it.
  status.Update(store_.Commit());
  if (status.ok()) stream->Write(response);
  return rpc::ToGrpc(status);
}

grpc::Status KvStoreService::Pin(grpc::ServerContext*, const v1::PinRequest* request,
                                 v1::PinResponse* response) {
  response->set_changed(store_.Pin(ParseIds(request->ids()), request->pinned()));
  return grpc::Status::OK;
}

grpc::Status KvStoreService::Delete(grpc::ServerContext*, const v1::DeleteRequest* request,
                                    v1::DeleteResponse* response) {
  response->set_deleted(request->all() ? store_.DeleteAll()
                                       : store_.Delete(ParseIds(request->ids())));
  return grpc::Status::OK;
}

grpc::Status KvStoreService::Status(grpc::ServerContext*, const v1::KvStoreStatusRequest*,
                                    v1::KvStoreStatusResponse* response) {
  const StoreStatus status = store_.status();
  response->set_blocks(status.blocks);
  response->set_checkpoints(status.checkpoints);
  response->set_bytes(status.bytes);
  response->set_budget_bytes(status.budget_bytes);
  response->set_plans(status.plans);
  response->set_plan_hits(status.plan_hits);
  response->set_restored_tokens(status.planned_tokens);
  response->set_saved_blocks(status.saved_blocks);
  response->set_evicted_blocks(status.evicted_blocks);
  response->set_moved_tokens(status.moved_tokens);
  response->set_damaged_blocks(status.damaged_blocks);
  response->set_degraded(status.degraded);
  response->set_degraded_reason(status.degraded_reason);
  response->set_disk_bytes(status.disk_bytes);
  response->set_written_bytes(status.written_bytes);
  response->set_segments(status.segments);
  response->set_path(path_);
  return grpc::Status::OK;
}

grpc::Status KvStoreService::List(grpc::ServerContext*, const v1::ListRequest* request,
                                  v1::ListResponse* response) {
  const std::optional<BlockId> id = state::BlockIdFromRaw(request->id());
  if (!id && !request->id().empty()) {
    return rpc::ToGrpc(absl::InvalidArgumentError("a block id has not 16 bytes"));
  }
  for (const Conversation& c : store_.List(id, std::min(request->tokens(), kMaxListTokens))) {
    v1::Conversation& out = *response->add_conversations();
    out.set_id(c.chain.back().id.ToString());
    out.set_tokens(c.chain.back().first_token + c.chain.back().tokens);
    out.set_blocks(static_cast<uint32_t>(c.chain.size()));
    out.set_own_blocks(c.own_blocks);
    out.set_own_bytes(c.own_bytes);
    out.set_last_used_ms(c.last.last_used_ms);
    out.set_uses(c.last.uses);
    out.set_pinned(c.last.pinned);
    out.set_lineage(static_cast<v1::Lineage>(c.last.lineage));
    out.set_root(c.last.root.ToString());
    out.mutable_own_tokens()->mutable_ids()->Assign(c.own_tokens.begin(), c.own_tokens.end());
    if (request->chains()) SetBlocks(c.chain, *out.mutable_chain());
  }
  return grpc::Status::OK;
}

grpc::Status KvStoreService::Verify(grpc::ServerContext* context, const v1::VerifyRequest*,
                                    grpc::ServerWriter<v1::VerifyResponse>* writer) {
  const auto send = [&](const Verification& so_far) {
    v1::VerifyResponse response;
    response.set_blocks(so_far.blocks);
    response.set_bytes(so_far.bytes);
    response.set_damaged(so_far.damaged);
    response.set_total_blocks(so_far.total_blocks);
    return writer->Write(response);
  };
  const Verification all = store_.Verify([&](const Verification& so_far) {
    if (so_far.blocks % kVerifyStep == 0 && !send(so_far)) return false;
    return !context->IsCancelled();
  });
  send(all);
  return context->IsCancelled() ? grpc::Status::CANCELLED : grpc::Status::OK;
}

grpc::Status KvStoreService::CollectGarbage(grpc::ServerContext*, const v1::CollectGarbageRequest*,
                                            v1::CollectGarbageResponse* response) {
  response->set_freed_bytes(store_.CollectGarbage());
  response->set_disk_bytes(store_.status().disk_bytes);
  return grpc::Status::OK;
}

grpc::Status KvStoreService::PutProfile(grpc::ServerContext*, const v1::PutProfileRequest* request,
                                        v1::PutProfileResponse*) {
  return rpc::ToGrpc(
      store_.PutProfile(ProfileKey(request->name(), request->fingerprint()), request->value()));
}

grpc::Status KvStoreService::GetProfile(grpc::ServerContext*, const v1::GetProfileRequest* request,
                                        v1::GetProfileResponse* response) {
  absl::StatusOr<std::string> value =
      store_.GetProfile(ProfileKey(request->name(), request->fingerprint()));
  if (absl::IsNotFound(value.status())) return grpc::Status::OK;  // found stays false
  if (!value.ok()) return rpc::ToGrpc(value.status());
  response->set_found(true);
  response->set_value(*std::move(value));
  return grpc::Status::OK;
}

}  // namespace strata::kvstore
