// strata.v1.KvStore. Includes gRPC headers.
//
// The synchronous API suits it: calls move megabytes to and from the disk, a thread each is no cost
// beside that.
#pragma once

#include <string>

#include "services/kvstore/blocks/block_store.h"
#include "strata/v1/kvstore.grpc.pb.h"

namespace strata::kvstore {

class KvStoreService final : public v1::KvStore::Service {
 public:
  // A block of the largest model we know has some 20 MB; a header that announces more than this is
  // refused before anything is allocated for it.
  static constexpr uint64_t kMaxBlockBytes = uint64_t{1} << 30;

  // Runs of fewer than `min_run_tokens` are read rather than moved.
  KvStoreService(BlockStore& store, std::string path, uint32_t min_run_tokens);

  grpc::Status Plan(grpc::ServerContext* context, const v1::PlanRequest* request,
                    v1::PlanResponse* response) override;
  grpc::Status Pin(grpc::ServerContext* context, const v1::PinRequest* request,
                   v1::PinResponse* response) override;
  grpc::Status Delete(grpc::ServerContext* context, const v1::DeleteRequest* request,
                      v1::DeleteResponse* response) override;
  grpc::Status Status(grpc::ServerContext* context, const v1::KvStoreStatusRequest* request,
                      v1::KvStoreStatusResponse* response) override;
  grpc::Status List(grpc::ServerContext* context, const v1::ListRequest* request,
                    v1::ListResponse* response) override;
  grpc::Status Verify(grpc::ServerContext* context, const v1::VerifyRequest* request,
                      grpc::ServerWriter<v1::VerifyResponse>* writer) override;
  grpc::Status CollectGarbage(grpc::ServerContext* context,
                              const v1::CollectGarbageRequest* request,
                              v1::CollectGarbageResponse* response) override;
  grpc::Status PutProfile(grpc::ServerContext* context, const v1::PutProfileRequest* request,
                          v1::PutProfileResponse* response) override;
  grpc::Status GetProfile(grpc::ServerContext* context, const v1::GetProfileRequest* request,
                          v1::GetProfileResponse* response) override;

 private:
  // Restore and Save, with messages as they are on the wire (common/rpc/bulk.h).
  using RestoreStream = grpc::ServerReaderWriter<grpc::ByteBuffer, v1::RestoreRequest>;
  using SaveStream = grpc::ServerReaderWriter<v1::SaveResponse, grpc::ByteBuffer>;
  grpc::Status RestoreBulk(grpc::ServerContext* context, RestoreStream* stream);
  grpc::Status SaveBulk(grpc::ServerContext* context, SaveStream* stream);

  BlockStore& store_;
  const std::string path_;
  const uint32_t min_run_tokens_;
};

}  // namespace strata::kvstore
