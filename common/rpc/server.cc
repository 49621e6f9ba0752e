#include "common/rpc/server.h"

#include <fcntl.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/rpc/address.h"
#include "common/rpc/library.h"
#include "common/rpc/tls.h"

namespace strata::rpc {
namespace {

constexpr int kMaxMessageBytes = 64 << 20;
constexpr std::string_view kUnixPrefix = "unix:";

// Holds an exclusive lock for the life of the process. The lock, not the socket, tells whether
// another instance lives: gRPC itself silently takes over any existing socket file.
absl::StatusOr<UniqueFd> LockSocket(const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket path '", path, "' has ", path.size(), " bytes, the system allows ",
                     sizeof(sockaddr_un::sun_path) - 1, ": choose a shorter runtime_dir"));
  }
  const std::string lock = path + ".lock";
  UniqueFd fd(open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0660));
  if (!fd.valid()) {
    return ErrnoStatus(errno,
                       absl::StrCat("cannot create '", lock,
                                    "' (does the runtime directory exist, is it writable?)"));
  }
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::AlreadyExistsError(absl::StrCat("another instance serves '", path,
                                                 "'; stop it or choose another runtime_dir"));
  }
  unlink(path.c_str());  // left over by a process that died
  return fd;
}

}  // namespace

class Server::Impl {
 public:
  UniqueFd lock;
  std::string socket_path;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { Shutdown(std::chrono::milliseconds(0)); }

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const std::string& address,
                                                      const v1::TlsConfig& tls,
                                                      std::span<grpc::Service* const> services) {
  auto impl = std::make_unique<Impl>();
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
  if (address.starts_with(kUnixPrefix)) {
    impl->socket_path = address.substr(kUnixPrefix.size());
    STRATA_ASSIGN_OR_RETURN(impl->lock, LockSocket(impl->socket_path));
  } else if (!tls.certificate().empty()) {
    STRATA_ASSIGN_OR_RETURN(credentials, ServerCredentials(tls));
  } else if (!IsLoopback(address)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "refusing to listen on ", address, " without TLS: set `tls` in the configuration"));
  }

  KeepLibraryInitialized();
  static const bool once = [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  (void)once;
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a taken port must be an error
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // How often idle threads of synchronous services look up; a shutdown can wait that long for them.
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::CQ_TIMEOUT_MSEC, 200);
  builder.AddListeningPort(address, credentials, &impl->port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  // Only the owner and the group may connect: nobody else, not even between bind and chmod.
  const mode_t old_mask = umask(0117);
  impl->server = builder.BuildAndStart();
  umask(old_mask);
  if (impl->server == nullptr || (impl->socket_path.empty() && impl->port == 0)) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, ": the address is in use or not ours"));
  }
  if (!impl->socket_path.empty()) {
    impl->port = 0;
    if (chmod(impl->socket_path.c_str(), 0660) != 0) {
      return ErrnoStatus(errno, absl::StrCat("cannot set the mode of '", impl->socket_path, "'"));
    }
  }
  auto server = std::unique_ptr<Server>(new Server(std::move(impl)));
  server->SetServing(false);
  return server;
}

void Server::SetServing(bool serving) {
  impl_->server->GetHealthCheckService()->SetServingStatus(serving);
}

int Server::port() const { return impl_->port; }

void Server::Shutdown(std::chrono::milliseconds grace) {
  if (impl_->server == nullptr) return;
  SetServing(false);
  impl_->server->Shutdown(std::chrono::system_clock::now() + grace);
  impl_->server->Wait();
  impl_->server.reset();
  if (!impl_->socket_path.empty()) unlink(impl_->socket_path.c_str());
}

}  // namespace strata::rpc
