#include "services/expertstore/service/expert_store_service.h"

#include <algorithm>
#include <vector>

#include "common/base/status.h"
#include "common/rpc/channel.h"

namespace strata::expertstore {
namespace {

// More uses of one expert in one message are no routing.
constexpr uint32_t kMostUses = 1 << 16;

void ToProto(const gguf::ExpertGeometry& from, v1::ExpertGeometry* to) {
  for (const std::string& file : from.files) to->add_files(file);
  for (const gguf::ExpertLayer& layer : from.layers) {
    v1::ExpertLayer* out = to->add_layers();
    out->set_layer(layer.layer);
    out->set_experts(layer.experts);
    for (const gguf::ExpertPart& part : layer.parts) {
      v1::ExpertPart* out_part = out->add_parts();
      out_part->set_type(static_cast<uint32_t>(part.type));
      out_part->set_file(part.file);
      out_part->set_offset(part.offset);
      out_part->set_bytes_per_expert(part.bytes_per_expert);
    }
  }
}

}  // namespace

grpc::Status ExpertStoreService::Open(grpc::ServerContext* /*context*/,
                                      const v1::OpenExpertsRequest* request,
                                      v1::OpenExpertsResponse* response) {
  if (request->fingerprint().hash() != model_.fingerprint.hash()) {
    return rpc::ToGrpc(absl::FailedPreconditionError(absl::StrCat(
        "the expert store serves '", model_.fingerprint.name(), "' from '",
        model_.file->files().front(), "', the caller asks for '", request->fingerprint().name(),
        "' (other weights or another file); configure the same model for both")));
  }
  if (const absl::Status unchanged = model_.file->CheckUnchanged(); !unchanged.ok()) {
    return rpc::ToGrpc(unchanged);
  }
  *response->mutable_fingerprint() = model_.fingerprint;
  ToProto(model_.geometry, response->mutable_geometry());
  if (model_.plane != nullptr) {
    response->set_attach_path(model_.plane->options().attach_path);
    response->set_arena_bytes(model_.plane->plan().bytes);
    response->set_slots(model_.plane->plan().slots);
  }
  return grpc::Status::OK;
}

grpc::Status ExpertStoreService::Hint(grpc::ServerContext* /*context*/,
                                      grpc::ServerReader<v1::RoutingHint>* reader,
                                      v1::HintSummary* response) {
  uint64_t taken = 0;
  v1::RoutingHint hint;
  while (reader->Read(&hint)) {
    if (model_.plane == nullptr) continue;
    std::vector<ExpertUses> uses;
    for (const v1::ExpertUse& use : hint.uses()) {
      uses.push_back({use.layer(), use.expert(), std::min(use.count(), kMostUses)});
    }
    switch (hint.phase()) {
      case v1::RoutingHint::DECODE:
        taken += model_.plane->CountUses(uses, policy::Phase::kDecode);
        break;
      case v1::RoutingHint::PROMPT:
        taken += model_.plane->CountUses(uses, policy::Phase::kPrompt);
        break;
      case v1::RoutingHint::PREDICTED:
        model_.plane->LookAhead(uses);
        break;
      default:
        return rpc::ToGrpc(absl::InvalidArgumentError(
            absl::StrCat("routing hint of unknown phase ", static_cast<int>(hint.phase()))));
    }
  }
  response->set_uses(taken);
  return grpc::Status::OK;
}

grpc::Status ExpertStoreService::Status(grpc::ServerContext* /*context*/,
                                        const v1::ExpertStoreStatusRequest* /*request*/,
                                        v1::ExpertStoreStatusResponse* response) {
  *response->mutable_fingerprint() = model_.fingerprint;
  if (model_.plane == nullptr) return grpc::Status::OK;
  const DataPlaneStatus status = model_.plane->Status();
  response->set_arena_bytes(status.arena_bytes);
  response->set_slots(status.slots);
  response->set_experts(status.experts);
  response->set_resident(status.counts.resident);
  response->set_hits(status.counts.hits);
  response->set_misses(status.counts.misses);
  response->set_evictions(status.counts.evictions);
  response->set_bytes_read(status.bytes_read);
  response->set_read_errors(status.read_errors);
  response->set_queue_depth(status.reads_in_flight);
  response->set_queued(status.reads_waiting);
  response->set_clients(status.clients);
  response->set_direct_io(status.direct_io);
  if (status.usable_slots > 0) {
    response->set_load_fraction(static_cast<double>(status.counts.resident) /
                                static_cast<double>(status.usable_slots));
  }
  response->set_sealed(status.sealed);
  response->set_huge_pages(status.huge_pages);
  response->set_read_engine(status.engine);
  response->set_policy(status.policy);
  response->set_limit_bytes(status.limit_bytes);
  response->set_held_bytes(status.held_bytes);
  response->set_packed(status.packed);
  response->set_copies(status.copies);
  response->set_second_sources(status.counts.second_sources);
  response->set_bad_checksums(status.counts.bad_checksums);
  response->set_failed_loads(status.counts.failed_loads);
  return grpc::Status::OK;
}

grpc::Status ExpertStoreService::SetMemory(grpc::ServerContext* /*context*/,
                                           const v1::SetMemoryRequest* request,
                                           v1::SetMemoryResponse* response) {
  if (model_.memory == nullptr) return grpc::Status::OK;
  if (const absl::Status set = model_.memory->SetCeiling(request->limit_bytes()); !set.ok()) {
    return rpc::ToGrpc(set);
  }
  const DataPlaneStatus status = model_.plane->Status();
  response->set_limit_bytes(status.limit_bytes);
  response->set_held_bytes(status.held_bytes);
  response->set_slots(status.usable_slots);
  return grpc::Status::OK;
}

grpc::Status ExpertStoreService::SaveProfile(grpc::ServerContext* /*context*/,
                                             const v1::SaveProfileRequest* /*request*/,
                                             v1::SaveProfileResponse* response) {
  if (model_.profile == nullptr) return grpc::Status::OK;
  const absl::StatusOr<uint64_t> saved = model_.profile->Save();
  if (!saved.ok()) return rpc::ToGrpc(saved.status());
  response->set_entries(*saved);
  return grpc::Status::OK;
}

}  // namespace strata::expertstore
