// The RPC side over a real socket, with a real store behind it.
#include "services/expertstore/service/expert_store_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "common/gguf/writer.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "services/expertstore/test_support.h"

namespace strata::expertstore {
namespace {

using ::testing::HasSubstr;

// A kvstore that is there or away.
class KeptProfile : public RemoteProfile {
 public:
  absl::StatusOr<std::string> Get(std::chrono::milliseconds /*timeout*/) override {
    if (away) return absl::UnavailableError("away");
    return text;
  }
  absl::Status Put(const std::string& value, std::chrono::milliseconds /*timeout*/) override {
    if (away) return absl::UnavailableError("away");
    text = value;
    return absl::OkStatus();
  }
  bool away = false;
  std::string text;
};

class ServiceTest : public testing::Test {
 protected:
  ServiceTest() {
    const std::string path = TestPath("service.gguf");
    auto writer = gguf::Writer::Create(path);
    writer->Set("general.architecture", std::string("test"));
    writer->Set("general.name", std::string("Tiny"));
    const std::vector<std::byte> bytes(8 * 8 * 4 * sizeof(float));
    for (const char* part : {"gate", "up", "down"}) {
      writer->DeclareTensor("blk.3.ffn_" + std::string(part) + "_exps.weight", TensorType::kF32,
                            {8, 8, 4});
    }
    for (const char* part : {"gate", "up", "down"}) {
      EXPECT_TRUE(
          writer->WriteTensor("blk.3.ffn_" + std::string(part) + "_exps.weight", bytes).ok());
    }
    EXPECT_TRUE(writer->Finish().ok());
    file_ = gguf::Model::Open(path).value();
    geometry_ = gguf::ReadExpertGeometry(*file_).value();
  }
  ~ServiceTest() override {
    std::filesystem::remove(TestPath("service.gguf"));
    std::filesystem::remove(TestPath("service.profile"));
    std::filesystem::remove(TestPath("service.sock.lock"));
  }

  ServedModel Served() {
    ServedModel model;
    model.file = file_.get();
    const auto hash = file_->Fingerprint();
    model.fingerprint.set_hash(hash.data(), hash.size());
    model.fingerprint.set_name("Tiny");
    model.geometry = geometry_;
    return model;
  }
  void Serve(ServedModel model) {
    service_ = std::make_unique<ExpertStoreService>(std::move(model));
    grpc::Service* const services[] = {service_.get()};
    const std::string address = "unix:" + TestPath("service.sock");
    server_ = rpc::Server::Start(address, {}, services).value();
    stub_ = v1::ExpertStore::NewStub(rpc::Connect(address, {}).value());
  }
  v1::ExpertStoreStatusResponse Status() {
    grpc::ClientContext context;
    v1::ExpertStoreStatusResponse response;
    EXPECT_TRUE(stub_->Status(&context, {}, &response).ok());
    return response;
  }

  std::unique_ptr<gguf::Model> file_;
  gguf::ExpertGeometry geometry_;
  std::unique_ptr<ExpertStoreService> service_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<v1::ExpertStore::Stub> stub_;
};

TEST_F(ServiceTest, OpensStatusHintsAndProfile) {
  DataPlaneOptions options;
  options.geometry = geometry_;
  options.attach_path = TestPath("service-attach.sock");
  options.arena_bytes = 1 << 20;
  RunningPlane plane(options);
  KeptProfile kept;
  ProfileKeeper profile(*plane.operator->(), TestPath("service.profile"), &kept);
  ServedModel model = Served();
  model.plane = plane.operator->();
  model.profile = &profile;
  Serve(model);

  v1::OpenExpertsRequest open;
  *open.mutable_fingerprint() = model.fingerprint;
  v1::OpenExpertsResponse opened;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->Open(&context, open, &opened).ok());
  }
  EXPECT_EQ(opened.attach_path(), options.attach_path);
  EXPECT_EQ(opened.slots(), 4u);
  ASSERT_EQ(opened.geometry().layers_size(), 1);
  EXPECT_EQ(opened.geometry().layers(0).layer(), 3u);
  EXPECT_EQ(opened.geometry().layers(0).parts_size(), 3);
  EXPECT_EQ(opened.geometry().layers(0).parts(1).bytes_per_expert(), 256u);

  open.mutable_fingerprint()->set_hash("another");
  {
    grpc::ClientContext context;
    const grpc::Status status = stub_->Open(&context, open, &opened);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_THAT(status.error_message(), HasSubstr(file_->files()[0]));
  }

  v1::RoutingHint hint;
  for (uint32_t e = 0; e < 6; ++e) {  // two of them do not exist
    v1::ExpertUse* use = hint.add_uses();
    use->set_layer(3);
    use->set_expert(e);
    use->set_count(e + 1);
  }
  v1::HintSummary summary;
  {
    grpc::ClientContext context;
    auto writer = stub_->Hint(&context, &summary);
    for (const auto phase :
         {v1::RoutingHint::DECODE, v1::RoutingHint::PROMPT, v1::RoutingHint::PREDICTED}) {
      hint.set_phase(phase);
      writer->Write(hint);
    }
    writer->WritesDone();
    EXPECT_TRUE(writer->Finish().ok());
  }
  EXPECT_EQ(summary.uses(), 2u * (1 + 2 + 3 + 4));
  {
    grpc::ClientContext context;
    auto writer = stub_->Hint(&context, &summary);
    hint.set_phase(v1::RoutingHint::PHASE_UNSPECIFIED);
    writer->Write(hint);
    writer->WritesDone();
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }

  v1::SaveProfileResponse saved;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(stub_->SaveProfile(&context, {}, &saved).ok());
  }
  EXPECT_EQ(saved.entries(), 4u);
  const auto values = ProfileKeeper::Load(TestPath("service.profile"), nullptr, geometry_, {});
  ASSERT_EQ(values.size(), 4u);
  EXPECT_GT(values[3], values[0]);
  // The same from kvstore alone; of two the newer; without kvstore the file.
  EXPECT_EQ(ProfileKeeper::Load("/nowhere", &kept, geometry_, {}), values);
  kept.text = FormatProfile({1, {{3, 1, 50}}}, {});
  EXPECT_EQ(ProfileKeeper::Load(TestPath("service.profile"), &kept, geometry_, {}), values);
  kept.text = FormatProfile({1ll << 40, {{3, 1, 50}}}, {});
  EXPECT_EQ(ProfileKeeper::Load(TestPath("service.profile"), &kept, geometry_, {})[1], 50);
  kept.away = true;
  EXPECT_EQ(ProfileKeeper::Load(TestPath("service.profile"), &kept, geometry_, {}), values);
  EXPECT_EQ(*profile.Save(), 4u);

  while (Status().resident() < 4) std::this_thread::yield();
  const auto status = Status();
  EXPECT_EQ(status.experts(), 4u);
  EXPECT_EQ(status.load_fraction(), 1.0);
  EXPECT_TRUE(status.sealed());
  EXPECT_GE(status.bytes_read(), 3u * 4 * 256);
}

TEST_F(ServiceTest, ADenseModelHasNothingToKeep) {
  ServedModel model = Served();
  model.geometry = {};
  Serve(model);
  v1::OpenExpertsRequest open;
  *open.mutable_fingerprint() = model.fingerprint;
  v1::OpenExpertsResponse opened;
  grpc::ClientContext context;
  ASSERT_TRUE(stub_->Open(&context, open, &opened).ok());
  EXPECT_EQ(opened.geometry().layers_size(), 0);
  EXPECT_EQ(opened.attach_path(), "");
  EXPECT_EQ(Status().experts(), 0u);
  grpc::ClientContext save;
  v1::SaveProfileResponse saved;
  EXPECT_TRUE(stub_->SaveProfile(&save, {}, &saved).ok());
}

}  // namespace
}  // namespace strata::expertstore
