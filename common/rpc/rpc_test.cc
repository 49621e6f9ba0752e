#include <grpcpp/health_check_service_interface.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "common/base/test_folder.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "strata/v1/kvstore.grpc.pb.h"

namespace strata::rpc {
namespace {

constexpr std::chrono::milliseconds kPatience{120000};

class EchoStatus final : public v1::KvStore::Service {
 public:
  grpc::Status Status(grpc::ServerContext* context, const v1::KvStoreStatusRequest*,
                      v1::KvStoreStatusResponse* response) override {
    response->set_path(RequestIdOf(*context));
    return grpc::Status::OK;
  }
  grpc::Status Pin(grpc::ServerContext*, const v1::PinRequest*, v1::PinResponse*) override {
    return ToGrpc(absl::ResourceExhaustedError("no room"));
  }
};

class RpcTest : public testing::Test {
 protected:
  std::string Address(std::string_view name) const { return "unix:" + folder_ / std::string(name); }
  absl::StatusOr<std::string> Ask(const std::string& address, const v1::TlsConfig& tls) {
    auto channel = Connect(address, tls);
    if (!channel.ok()) return channel.status();
    grpc::ClientContext context;
    PrepareCall(context, "req-1", kPatience);
    v1::KvStoreStatusResponse response;
    const auto status = v1::KvStore::NewStub(*channel)->Status(&context, {}, &response);
    if (!status.ok()) return FromGrpc(status);
    return response.path();
  }
  const TestFolder folder_;
  EchoStatus service_;
  grpc::Service* services_[1] = {&service_};
};

TEST_F(RpcTest, UnixSocketCarriesRequestIdAndHasMode0660) {
  auto server = Server::Start(Address("a"), {}, services_);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(Ask(Address("a"), {}).value(), "req-1");
  struct stat info;
  ASSERT_EQ(stat((folder_ / "a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660);
}

TEST_F(RpcTest, SecondInstanceIsRefusedAndLeftoverSocketReplaced) {
  std::ofstream(folder_ / "a") << "left over";
  auto first = Server::Start(Address("a"), {}, services_);
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = Server::Start(Address("a"), {}, services_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists) << second.status();
  EXPECT_EQ(Ask(Address("a"), {}).value(), "req-1") << "the first instance must be unharmed";
}

TEST_F(RpcTest, TakenPortIsAnError) {
  auto first = Server::Start("127.0.0.1:0", {}, services_);
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string address = "127.0.0.1:" + std::to_string((*first)->port());
  EXPECT_EQ(Server::Start(address, {}, services_).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RpcTest, TcpBeyondLoopbackNeedsTls) {
  EXPECT_EQ(Server::Start("0.0.0.0:0", {}, services_).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Connect("192.0.2.1:50051", {}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(RpcTest, ErrorsKeepCodeAndMessage) {
  auto server = Server::Start(Address("a"), {}, services_);
  ASSERT_TRUE(server.ok());
  grpc::ClientContext context;
  PrepareCall(context, "", kPatience);
  v1::PinResponse response;
  const absl::Status status =
      FromGrpc(v1::KvStore::NewStub(*Connect(Address("a"), {}))->Pin(&context, {}, &response));
  EXPECT_EQ(status, absl::ResourceExhaustedError("no room"));
}

TEST_F(RpcTest, ClientReconnectsAfterRestart) {
  auto server = Server::Start(Address("a"), {}, services_);
  auto channel = Connect(Address("a"), {});
  const auto ask = [&] {
    grpc::ClientContext context;
    PrepareCall(context, "again", kPatience);
    context.set_wait_for_ready(true);
    v1::KvStoreStatusResponse response;
    return v1::KvStore::NewStub(*channel)->Status(&context, {}, &response).ok();
  };
  EXPECT_TRUE(ask());
  server->reset();
  server = Server::Start(Address("a"), {}, services_);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_TRUE(ask());
}

// A certificate authority and one certificate for both sides, made by the openssl command.
class TlsTest : public RpcTest {
 protected:
  bool MakeCertificates() {
    const std::string script =
        "cd " + folder_.path() +
        " && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
        " -subj /CN=ca -keyout ca.key -out ca.pem 2>/dev/null"
        " && openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost"
        " -keyout peer.key -out peer.csr 2>/dev/null"
        " && printf 'subjectAltName=DNS:localhost,IP:127.0.0.1' > ext"
        " && openssl x509 -req -in peer.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2"
        " -extfile ext -out peer.pem 2>/dev/null";
    return std::system(script.c_str()) == 0;
  }
  v1::TlsConfig Tls() const {
    v1::TlsConfig tls;
    tls.set_certificate(folder_ / "peer.pem");
    tls.set_private_key(folder_ / "peer.key");
    tls.set_client_ca(folder_ / "ca.pem");
    return tls;
  }
};

TEST_F(TlsTest, MutualTlsWorksAndRefusesStrangers) {
  if (!MakeCertificates())
    GTEST_SKIP() << "the openssl command is missing (apt-get install openssl)";
  auto server = Server::Start("127.0.0.1:0", Tls(), services_);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = "127.0.0.1:" + std::to_string((*server)->port());
  EXPECT_EQ(Ask(address, Tls()).value(), "req-1");
  EXPECT_FALSE(Ask(address, {}).ok()) << "a client without a certificate was served";
}

TEST_F(TlsTest, MissingFileIsNamed) {
  v1::TlsConfig tls;
  tls.set_certificate("/nonexistent/c.pem");
  tls.set_client_ca("/nonexistent/ca.pem");
  const auto server = Server::Start("127.0.0.1:0", tls, services_);
  EXPECT_NE(server.status().message().find("/nonexistent/ca.pem"), absl::string_view::npos);
}

}  // namespace
}  // namespace strata::rpc
