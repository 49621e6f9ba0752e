// strata.v1.ExpertStore over a DataPlane: translation only. Includes gRPC headers.
#pragma once

#include "common/gguf/reader.h"
#include "services/expertstore/plane/data_plane.h"
#include "services/expertstore/service/memory_watch.h"
#include "services/expertstore/service/profile_keeper.h"
#include "strata/v1/expertstore.grpc.pb.h"

namespace strata::expertstore {

// What the daemon serves. A dense model has no experts: then the pointers below are null, Open says
// so by a geometry without layers, and the rest answers with zeros.
struct ServedModel {
  const gguf::Model* file = nullptr;
  v1::ModelFingerprint fingerprint;
  gguf::ExpertGeometry geometry;
  DataPlane* plane = nullptr;
  ProfileKeeper* profile = nullptr;
  MemoryWatch* memory = nullptr;
};

class ExpertStoreService final : public v1::ExpertStore::Service {
 public:
  // What `model` points to must outlive the service.
  explicit ExpertStoreService(ServedModel model) : model_(std::move(model)) {}

  grpc::Status Open(grpc::ServerContext* context, const v1::OpenExpertsRequest* request,
                    v1::OpenExpertsResponse* response) override;
  grpc::Status Hint(grpc::ServerContext* context, grpc::ServerReader<v1::RoutingHint>* reader,
                    v1::HintSummary* response) override;
  grpc::Status Status(grpc::ServerContext* context, const v1::ExpertStoreStatusRequest* request,
                      v1::ExpertStoreStatusResponse* response) override;
  grpc::Status SetMemory(grpc::ServerContext* context, const v1::SetMemoryRequest* request,
                         v1::SetMemoryResponse* response) override;
  grpc::Status SaveProfile(grpc::ServerContext* context, const v1::SaveProfileRequest* request,
                           v1::SaveProfileResponse* response) override;

 private:
  const ServedModel model_;
};

}  // namespace strata::expertstore
