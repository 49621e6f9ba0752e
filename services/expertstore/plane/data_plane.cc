#include "services/expertstore/plane/data_plane.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <utility>

#include "common/base/log.h"
#include "common/base/memory_info.h"
#include "common/base/status.h"
#include "common/policy/make_policy.h"
#include "common/shm/fd_socket.h"
#include "common/shm/memfd.h"
#include "services/expertstore/io/thread_engine.h"
#include "services/expertstore/io/uring_engine.h"

namespace strata::expertstore {
namespace {

// What an epoll event is about: kind in the upper half, number in the lower.
enum EventKind : uint64_t { kListener, kControl, kEngine, kPending, kClientSocket, kDoorbell };
constexpr uint64_t Event(EventKind kind, uint64_t number = 0) { return kind << 32 | number; }

void Drain(int event_fd) {
  uint64_t count;
  [[maybe_unused]] const ssize_t got = read(event_fd, &count, sizeof(count));
}

void Signal(int event_fd) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t wrote = write(event_fd, &one, sizeof(one));
}

// The budget for slots: what was asked for, or a share of what is free.
absl::StatusOr<SlotPlan> PlanFor(const DataPlaneOptions& options, const Places& places) {
  uint64_t bytes = options.arena_bytes;
  if (bytes == 0) {
    const uint64_t free = AvailableMemory();
    bytes = free / 5 * 4;
    LogInfo("free memory: ", free, " bytes; the expert arena may take ", bytes);
  }
  return PlanSlots(places, bytes, options.experts_per_token);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReadEngine>> DataPlane::SystemEngine(
    const ModelFiles& files, std::span<const std::span<std::byte>> pieces, uint32_t depth) {
  absl::StatusOr<std::unique_ptr<UringEngine>> uring = UringEngine::Create(files, pieces, depth);
  if (uring.ok()) return *std::move(uring);
  LogWarning("io_uring is not available (", uring.status().message(), "); reading with threads");
  return ThreadEngine::Create(files, depth);
}

absl::StatusOr<std::unique_ptr<DataPlane>> DataPlane::Create(DataPlaneOptions options,
                                                             const EngineFactory& engine) {
  STRATA_ASSIGN_OR_RETURN(
      const ExpertFiles sources,
      FindExpertFiles(options.geometry, options.fingerprint, options.mirrors, options.packs));
  STRATA_ASSIGN_OR_RETURN(SlotPlan plan, PlanFor(options, sources.places));
  STRATA_ASSIGN_OR_RETURN(ModelFiles files, ModelFiles::Open(sources.files, options.direct_io));
  STRATA_ASSIGN_OR_RETURN(Arena arena, Arena::Create(plan.bytes, plan.least_bytes));
  if (arena.size() < plan.bytes) {
    STRATA_ASSIGN_OR_RETURN(plan,
                            PlanSlots(sources.places, arena.size(), options.experts_per_token));
  }
  const bool all = plan.bytes >= plan.all_bytes;
  if (options.packs.empty() && (options.layout == SlotLayout::kInterleaved ||
                                (options.layout == SlotLayout::kInterleavedIfAll && all))) {
    InterleaveSlots(sources.places, &plan);
  }
  auto plane = std::unique_ptr<DataPlane>(new DataPlane(
      std::move(options), sources, std::move(plan), std::move(arena), std::move(files)));
  STRATA_RETURN_IF_ERROR(plane->Start(engine));
  return plane;
}

DataPlane::DataPlane(DataPlaneOptions options, const ExpertFiles& places, SlotPlan plan,
                     Arena arena, ModelFiles files)
    : options_(std::move(options)),
      places_(places.places),
      plan_(std::move(plan)),
      map_(places, plan_),
      arena_(std::move(arena)),
      files_(std::move(files)),
      hotness_(plan_.experts) {}

DataPlane::~DataPlane() {
  if (listener_.valid()) unlink(options_.attach_path.c_str());
}

absl::Status DataPlane::Start(const EngineFactory& engine) {
  STRATA_RETURN_IF_ERROR(arena_.SealFor(options_.sealed));
  const uint64_t table_bytes =
      shm::TableWriter::BytesFor(static_cast<uint32_t>(plan_.layers.size()),
                                 static_cast<uint32_t>(plan_.classes.size()), plan_.experts);
  STRATA_ASSIGN_OR_RETURN(table_fd_, shm::CreateMemfd("strata-table", table_bytes));
  STRATA_ASSIGN_OR_RETURN(table_memory_,
                          MemoryMap::Shared(table_fd_.get(), table_bytes, /*writable=*/true));
  STRATA_RETURN_IF_ERROR(shm::Seal(table_fd_.get(), shm::SealKind::kOwnerWrites));
  table_ = shm::TableWriter({table_memory_.data(), table_memory_.size()}, plan_.layers,
                            plan_.classes, arena_.size(), options_.fingerprint);
  regions_ = {arena_.client_fd(), table_fd_.get(),      arena_.size(), table_bytes,
              options_.sealed,    options_.fingerprint, plan_.slots,   plan_.experts};

  STRATA_ASSIGN_OR_RETURN(engine_, engine(files_, RegistrationPieces(plan_, arena_.data()),
                                          options_.queue_depth * map_.copies()));
  ReadQueue::Options read_options;
  read_options.slice_bytes = options_.slice_bytes;
  read_options.background_depth = std::max(1u, engine_->depth() / 4);
  reads_ = std::make_unique<ReadQueue>(*engine_, files_, read_options);
  policy_name_ = std::string(policy::Choose(options_.policy, PolicyShape()));
  STRATA_ASSIGN_OR_RETURN(policy_, policy::Make(policy_name_, PolicyShape(), hotness_));
  memory_ = std::make_unique<SlotMemory>(plan_, arena_, [this] { engine_->ReleaseBuffers(); });
  residency_ =
      std::make_unique<Residency>(plan_, map_, *memory_, table_, *reads_, hotness_, *policy_);
  limit_bytes_ = plan_.bytes;
  for (uint32_t e = 0; e < options_.profile.size() && e < plan_.experts; ++e) {
    hotness_.Seed(e, options_.profile[e]);
  }
  residency_->SetBackgroundOrder(BackgroundOrder());

  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  control_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_.valid() || !control_.valid()) return ErrnoStatus(errno, "cannot create an epoll");
  STRATA_ASSIGN_OR_RETURN(listener_, shm::ListenOn(options_.attach_path, 0660));
  STRATA_RETURN_IF_ERROR(Watch(control_.get(), Event(kControl)));
  STRATA_RETURN_IF_ERROR(Watch(engine_->fd(), Event(kEngine)));
  STRATA_RETURN_IF_ERROR(Watch(listener_.get(), Event(kListener)));
  LogInfo(
      "expert arena: ", plan_.slots, " slots for ", plan_.experts, " experts, ", arena_.size(),
      " bytes (", arena_.huge_bytes(), " in huge pages); policy: ", policy_name_,
      "; reads: ", options_.packs.empty() ? "the model" : "packs",
      map_.copies() > 1 ? absl::StrCat(" on ", map_.copies(), " drives") : "", ", ",
      engine_->name(),
      files_.all_direct(map_.copied_files()) ? ", past the page cache" : ", through the page cache",
      "; clients attach at '", options_.attach_path, "'");
  return absl::OkStatus();
}

policy::Shape DataPlane::PolicyShape() const {
  policy::Shape shape;
  for (uint32_t e = 0; e < plan_.experts; ++e) {
    shape.layer.push_back(map_.place(e).layer);
    shape.size_class.push_back(map_.place(e).size_class);
  }
  for (const shm::ClassRecord& record : plan_.classes) shape.class_slots.push_back(record.slots);
  shape.used_per_layer = options_.experts_per_token;
  return shape;
}

std::vector<uint32_t> DataPlane::BackgroundOrder() const {
  std::vector<uint32_t> order = map_.FileOrder();
  // With room for all, reading in file order is fastest. Otherwise what was hot comes first, and
  // without knowledge an equal part of every layer: a layer with nothing in memory cannot choose.
  if (plan_.slots < plan_.experts) {
    std::vector<double> hot;
    for (uint32_t e = 0; e < plan_.experts; ++e) hot.push_back(hotness_.Value(e));
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      if (hot[a] != hot[b]) return hot[a] > hot[b];
      return map_.place(a).index < map_.place(b).index;
    });
  }
  return order;
}

absl::Status DataPlane::Watch(int fd, uint64_t what) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = what;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return ErrnoStatus(errno, "cannot watch a descriptor");
  }
  return absl::OkStatus();
}

void DataPlane::Run() {
  // While a demand waits for a slot, a client that unpins without ringing (a broken one) must not
  // stop the others.
  constexpr int kStarvedMs = 5;
  while (!stopping_.load()) {
    TakeRequests();
    if (residency_->Advance()) continue;
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 residency_->starved() ? kStarvedMs : -1);
    for (int i = 0; i < count; ++i) HandleEvent(events[i].data.u64);
  }
  {
    const std::lock_guard lock(mutex_);
    running_ = false;
  }
  RunTasks();
  for (uint32_t client = 0; client < clients_.size(); ++client) {
    if (clients_[client]) DropClient(client, absl::OkStatus());
  }
}

void DataPlane::HandleEvent(uint64_t what) {
  const auto number = static_cast<uint32_t>(what);
  switch (what >> 32) {
    case kListener:
      Accept();
      break;
    case kControl:
      Drain(control_.get());
      RunTasks();
      break;
    case kPending:
      Greet(number);
      break;
    case kClientSocket:
      // Nothing is ever sent after the hello: readable means closed, or not our protocol.
      if (clients_[number]) DropClient(number, absl::OkStatus());
      break;
    case kDoorbell:
      if (clients_[number]) Drain(clients_[number]->doorbell.get());
      break;
    default:  // kEngine: Advance() takes the results
      break;
  }
}

void DataPlane::Accept() {
  UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket.valid()) return;
  // Whoever connects and says nothing loses his place to later ones.
  const size_t place = next_pending_++ % pending_.size();
  pending_[place] = std::move(socket);
  if (!Watch(pending_[place].get(), Event(kPending, place)).ok()) pending_[place].Reset();
}

void DataPlane::Greet(size_t place) {
  if (!pending_[place].valid()) return;
  UniqueFd socket = std::move(pending_[place]);
  const auto free = std::find(clients_.begin(), clients_.end(), std::nullopt);
  if (free == clients_.end()) {
    shm::Refuse(socket.get(), absl::ResourceExhaustedError(absl::StrCat(
                                  "the expert store has ", clients_.size(), " clients already")));
    return;
  }
  // The same socket is watched for its end from now on.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
  absl::StatusOr<shm::AttachedClient> client = shm::AnswerHello(std::move(socket), regions_);
  if (!client.ok()) {
    LogWarning("a client could not attach: ", client.status().message());
    return;
  }
  const auto number = static_cast<uint32_t>(free - clients_.begin());
  if (!Watch(client->socket.get(), Event(kClientSocket, number)).ok() ||
      !Watch(client->doorbell.get(), Event(kDoorbell, number)).ok()) {
    LogWarning("a client could not be watched; its connection is closed");
    return;
  }
  *free = *std::move(client);
  residency_->AddClient(number, (*free)->peer.get());
  LogInfo("client ", number, " attached");
}

void DataPlane::DropClient(uint32_t client, const absl::Status& why) {
  if (why.ok()) {
    LogInfo("client ", client, " left");
  } else {
    LogWarning("client ", client, " is dropped: ", why.message());
  }
  residency_->RemoveClient(client);
  // Closing takes socket and doorbell out of the epoll; the client may hold the eventfd still.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, clients_[client]->doorbell.get(), nullptr);
  clients_[client].reset();
}

void DataPlane::TakeRequests() {
  for (uint32_t client = 0; client < clients_.size(); ++client) {
    if (!clients_[client]) continue;
    requests_.clear();
    absl::Status status = clients_[client]->peer->TakeRequests(&requests_);
    for (size_t i = 0; i < requests_.size() && status.ok(); ++i) {
      status = residency_->Handle(client, requests_[i]);
    }
    if (!status.ok()) DropClient(client, status);
  }
}

void DataPlane::Stop() {
  stopping_.store(true);
  Signal(control_.get());
}

void DataPlane::OnThread(const std::function<void()>& task) {
  // Shared: the serving thread may still be inside set_value when the waiting one goes on.
  const auto done = std::make_shared<std::promise<void>>();
  {
    const std::lock_guard lock(mutex_);
    if (!running_) return;
    tasks_.push_back([&task, done] {
      task();
      done->set_value();
    });
  }
  Signal(control_.get());
  done->get_future().wait();
}

void DataPlane::RunTasks() {
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task();
}

DataPlaneStatus DataPlane::Status() {
  DataPlaneStatus status;
  OnThread([&] { status = StatusNow(); });
  return status;
}

DataPlaneStatus DataPlane::StatusNow() const {
  DataPlaneStatus status;
  status.arena_bytes = arena_.size();
  status.slots = plan_.slots;
  status.usable_slots = residency_->usable_slots();
  status.limit_bytes = limit_bytes_;
  status.held_bytes = arena_.held_bytes();
  status.settled = residency_->settled();
  status.experts = plan_.experts;
  status.counts = residency_->counts();
  status.bytes_read = reads_->bytes_read();
  status.reading_ns = reads_->reading_ns();
  status.read_errors = reads_->errors();
  status.reads_in_flight = reads_->in_flight();
  status.reads_waiting = reads_->waiting();
  status.clients = static_cast<uint32_t>(
      std::count_if(clients_.begin(), clients_.end(), [](const auto& c) { return c.has_value(); }));
  status.direct_io = files_.all_direct(map_.copied_files());
  status.sealed = options_.sealed;
  status.huge_pages = arena_.huge_bytes() == arena_.size();
  status.copies = map_.copies();
  status.packed = !options_.packs.empty();
  status.engine = engine_->name();
  status.policy = policy_name_;
  return status;
}

std::optional<uint32_t> DataPlane::NumberOf(const ExpertUses& expert) const {
  if (expert.layer >= plan_.layers.size()) return std::nullopt;
  const shm::LayerRecord& layer = plan_.layers[expert.layer];
  if (expert.index >= layer.experts) return std::nullopt;
  return layer.first_expert + expert.index;
}

absl::Status DataPlane::SetMemoryLimit(uint64_t bytes) {
  absl::Status status;
  OnThread([&] {
    std::vector<uint32_t> slots;
    for (const shm::ClassRecord& record : plan_.classes) slots.push_back(record.slots);
    if (bytes == 0 || bytes >= plan_.bytes) {
      SetSlots(slots, plan_.bytes);
      return;
    }
    const absl::StatusOr<SlotPlan> less = PlanSlots(places_, bytes, options_.experts_per_token);
    if (!less.ok()) {
      status = less.status();
      return;
    }
    for (size_t c = 0; c < slots.size(); ++c) {
      slots[c] = std::min(slots[c], less->classes[c].slots);
    }
    SetSlots(slots, bytes);
  });
  return status;
}

void DataPlane::SetSlots(std::span<const uint32_t> slots, uint64_t bytes) {
  if (bytes == limit_bytes_) return;
  const bool more = bytes > limit_bytes_;
  limit_bytes_ = bytes;
  residency_->SetSlots(slots);
  if (more) {
    residency_->CollectUses();
    residency_->SetBackgroundOrder(BackgroundOrder());
  }
  LogInfo("the expert arena may take ", bytes, " bytes; it holds ", memory_->slot_bytes());
}

uint64_t DataPlane::CountUses(std::span<const ExpertUses> uses, policy::Phase phase) {
  uint64_t taken = 0;
  OnThread([&] {
    for (const ExpertUses& use : uses) {
      const std::optional<uint32_t> expert = NumberOf(use);
      if (!expert) continue;
      residency_->CountUse(*expert, use.count, phase);
      taken += use.count;
    }
  });
  return taken;
}

void DataPlane::LookAhead(std::span<const ExpertUses> experts) {
  OnThread([&] {
    for (const ExpertUses& expert : experts) {
      if (const std::optional<uint32_t> number = NumberOf(expert)) residency_->LookAhead(*number);
    }
  });
}

std::vector<double> DataPlane::Profile() {
  std::vector<double> values;
  OnThread([&] {
    residency_->CollectUses();
    for (uint32_t e = 0; e < plan_.experts; ++e) values.push_back(hotness_.Value(e));
  });
  return values;
}

}  // namespace strata::expertstore
