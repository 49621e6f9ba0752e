#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "common/base/status.h"
#include "common/base/test_folder.h"
#include "common/shm/arena_client.h"
#include "common/shm/attach_server.h"
#include "common/shm/attachment.h"
#include "common/shm/client_peer.h"
#include "common/shm/fd_socket.h"
#include "common/shm/memfd.h"
#include "common/shm/table.h"

namespace strata::shm {
namespace {

using ::testing::HasSubstr;

constexpr Fingerprint kModel = {1, 2, 3};

std::string Message(const absl::Status& status) { return std::string(status.message()); }

std::vector<LayerRecord> TwoLayers() {
  std::vector<LayerRecord> layers(3);  // layer 0 has no experts
  for (int l = 1; l <= 2; ++l) {
    layers[l].first_expert = 4 * (l - 1);
    layers[l].experts = 4;
    layers[l].size_class = l - 1;
    layers[l].parts = 3;
    for (int p = 0; p < 3; ++p) {
      layers[l].part_start[p] = 8192ull * p;
      layers[l].file_offset[p] = 100000ull * (p + 1) + 32;
      layers[l].stride[p] = 1056;
      layers[l].bytes[p] = 1056;
    }
  }
  return layers;
}

std::vector<ClassRecord> TwoClasses() {
  return {{0, 3, 8192 * 3, 0}, {3, 2, 8192 * 3, 3 * 8192 * 3}};
}

constexpr uint64_t kArenaBytes = 5 * 8192 * 3;

// A store without a loop: regions, a listening socket, and one accepted client at a time.
struct MiniStore {
  explicit MiniStore(bool sealed = true) {
    const auto layers = TwoLayers();
    const auto classes = TwoClasses();
    arena_fd = CreateMemfd("arena", kArenaBytes).value();
    arena = MemoryMap::Shared(arena_fd.get(), kArenaBytes, true).value();
    EXPECT_TRUE(Seal(arena_fd.get(), SealKind::kFixedSize).ok());
    client_arena_fd =
        sealed ? ReadOnlyDescriptor(arena_fd.get()).value() : UniqueFd(dup(arena_fd.get()));
    const uint64_t table_bytes = TableWriter::BytesFor(3, 2, 8);
    table_fd = CreateMemfd("table", table_bytes).value();
    table = MemoryMap::Shared(table_fd.get(), table_bytes, true).value();
    writer = TableWriter({table.data(), table.size()}, layers, classes, kArenaBytes, kModel);
    EXPECT_TRUE(Seal(table_fd.get(), SealKind::kOwnerWrites).ok());
    regions = {
        client_arena_fd.get(), table_fd.get(), kArenaBytes, table_bytes, sealed, kModel, 5, 8};
    path = testing::TempDir() + "shm_test_" + std::to_string(getpid()) + "_" +
           std::to_string(sealed) + ".sock";
    auto socket = ListenOn(path, 0600);
    EXPECT_TRUE(socket.ok()) << socket.status();
    listener = *std::move(socket);
  }
  ~MiniStore() { unlink(path.c_str()); }

  absl::StatusOr<AttachedClient> AcceptOne() {
    pollfd ready{listener.get(), POLLIN, 0};
    poll(&ready, 1, 120000);
    UniqueFd socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    ready = {socket.get(), POLLIN, 0};
    poll(&ready, 1, 120000);
    return AnswerHello(std::move(socket), regions);
  }

  UniqueFd arena_fd, client_arena_fd, table_fd, listener;
  MemoryMap arena, table;
  TableWriter writer;
  SharedRegions regions;
  std::string path;
};

// Connects a client to the store, both in this process.
struct Pair {
  explicit Pair(MiniStore& store, Fingerprint fingerprint = kModel) {
    std::thread accept([&] { peer = store.AcceptOne(); });
    client = Attachment::Connect(store.path, fingerprint);
    accept.join();
  }
  absl::StatusOr<AttachedClient> peer = absl::UnknownError("");
  absl::StatusOr<std::unique_ptr<Attachment>> client = absl::UnknownError("");
};

TEST(Entry, PacksEveryField) {
  for (const EntryState state :
       {EntryState::kAbsent, EntryState::kLoading, EntryState::kResident, EntryState::kEvicting}) {
    const Entry entry{state, kMaxSlots - 3, 0xfffffffe};
    const Entry back = Entry::Unpack(entry.Pack());
    EXPECT_EQ(back.state, state);
    EXPECT_EQ(back.slot, kMaxSlots - 3);
    EXPECT_EQ(back.generation, 0xfffffffeu);
  }
  EXPECT_EQ(Entry{}.Pack(), 0u);  // fresh memory says absent
}

TEST(Table, WriterAndViewAgree) {
  MiniStore store;
  const auto view = TableView::Open(store.table.bytes(), kArenaBytes, kModel);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->experts(), 8u);
  EXPECT_EQ(view->slots(), 5u);
  EXPECT_EQ(view->layers()[2].first_expert, 4u);
  store.writer.SetEntry(5, {EntryState::kResident, 4, 9});
  EXPECT_EQ(view->entry(5).load(), (Entry{EntryState::kResident, 4, 9}.Pack()));
  // part 1 of expert 3 of layer 2 in the last slot, by hand
  const uint64_t want = 3 * 24576 + 1 * 24576 + 8192 + (200032 + 3 * 1056) % 4096;
  EXPECT_EQ(TableView::PartOffset(view->layers()[2], view->classes()[1], 3, 4, 1), want);
}

// Whatever bytes stand in header and records, Open either refuses them or every part of every
// expert in every slot lies inside the arena.
TEST(Table, OpenAcceptsOnlyTablesThatStayInsideTheArena) {
  MiniStore store;
  const std::vector<std::byte> good(store.table.bytes().begin(), store.table.bytes().end());
  const size_t records = good.size() - 8 * 8;
  std::mt19937_64 random(3);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    alignas(64) std::array<std::byte, 2048> table;
    ASSERT_LE(good.size(), table.size());
    std::copy(good.begin(), good.end(), table.begin());
    const int changes = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < changes; ++i) {
      table[random() % records] ^= static_cast<std::byte>(1 << random() % 8);
    }
    const auto view = TableView::Open(std::span(table).first(good.size()), kArenaBytes, kModel);
    if (!view.ok()) continue;
    ++accepted;
    for (const LayerRecord& layer : view->layers()) {
      if (layer.experts == 0) continue;
      const ClassRecord& c = view->classes()[layer.size_class];
      for (uint32_t slot = c.first_slot; slot < c.first_slot + c.slots; ++slot) {
        for (uint32_t e = 0; e < layer.experts; ++e) {
          for (uint32_t p = 0; p < layer.parts; ++p) {
            const uint64_t at = TableView::PartOffset(layer, c, e, slot, p);
            ASSERT_LE(at, kArenaBytes);
            ASSERT_LE(layer.bytes[p], kArenaBytes - at);
          }
        }
      }
    }
  }
  EXPECT_GT(accepted, 100);  // the loop above did check something
}

TEST(Socket, ReplacesALeftoverButNotALivingListener) {
  const TestFolder folder;
  const std::string path = folder / "leftover.sock";
  {
    auto first = ListenOn(path, 0660);
    ASSERT_TRUE(first.ok()) << first.status();
    struct stat info;
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0660u);
    const auto second = ListenOn(path, 0660);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(Message(second.status()), HasSubstr(path));
  }
  EXPECT_EQ(ConnectTo(path).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(ListenOn(path, 0660).ok());  // the file was left over
  unlink(path.c_str());
  EXPECT_EQ(ConnectTo(path).status().code(), absl::StatusCode::kUnavailable);
  std::ofstream(path) << "precious";
  EXPECT_EQ(ListenOn(path, 0660).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  unlink(path.c_str());
  EXPECT_FALSE(ConnectTo(std::string(200, 'x')).ok());
}

TEST(Attach, ClientSeesTheStoresBytesAndTheStoreItsPins) {
  MiniStore store;
  Pair pair(store);
  ASSERT_TRUE(pair.peer.ok()) << pair.peer.status();
  ASSERT_TRUE(pair.client.ok()) << pair.client.status();
  ArenaClient& client = (*pair.client)->client();
  EXPECT_EQ(client.TryPin(0), std::nullopt);
  store.arena.data()[2 * 24576] = std::byte{42};
  store.writer.SetEntry(0, {EntryState::kResident, 2, 1});
  ASSERT_EQ(client.TryPin(0), 2u);
  EXPECT_EQ(client.arena()[2 * 24576], std::byte{42});
  EXPECT_TRUE(pair.peer->peer->Pins(2));
  EXPECT_FALSE(pair.peer->peer->Pins(1));
  store.writer.SetEntry(0, {EntryState::kEvicting, 2, 1});
  EXPECT_EQ(client.TryPin(0), std::nullopt);
  EXPECT_TRUE(pair.peer->peer->Pins(2));
  client.Unpin(2);
  EXPECT_FALSE(pair.peer->peer->Pins(2));
}

TEST(Attach, SealsHold) {
  MiniStore store;
  for (const int fd : {store.client_arena_fd.get(), store.table_fd.get()}) {
    EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    EXPECT_NE(ftruncate(fd, 0), 0);
    EXPECT_NE(ftruncate(fd, kArenaBytes * 2), 0);
    EXPECT_LT(write(fd, "x", 1), 0);
    EXPECT_NE(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
  }
  store.arena.data()[5] = std::byte{1};  // the store's own mapping stays writable
  MiniStore open_store(/*sealed=*/false);
  void* map = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, open_store.arena_fd.get(), 0);
  EXPECT_NE(map, MAP_FAILED);
  munmap(map, 4096);
  Pair pair(open_store);
  EXPECT_TRUE(pair.client.ok()) << pair.client.status();
}

TEST(Attach, RefusesAnotherModelWithAReason) {
  MiniStore store;
  Pair pair(store, Fingerprint{9});
  EXPECT_EQ(pair.client.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(pair.client.status()), HasSubstr("another model"));
  EXPECT_FALSE(pair.peer.ok());
}

TEST(Attach, RefusesWhatIsNotAHello) {
  MiniStore store;
  const std::vector<std::vector<std::byte>> hellos = {{},
                                                      {std::byte{1}},
                                                      std::vector<std::byte>(sizeof(ClientHello)),
                                                      std::vector<std::byte>(5000, std::byte{7})};
  for (const auto& bytes : hellos) {
    const UniqueFd socket = ConnectTo(store.path).value();
    send(socket.get(), bytes.data(), bytes.size(), 0);
    if (bytes.empty()) shutdown(socket.get(), SHUT_WR);
    EXPECT_FALSE(store.AcceptOne().ok());
  }
  // Descriptors nobody asked for are refused (and closed).
  const UniqueFd socket = ConnectTo(store.path).value();
  ClientHello hello;
  hello.fingerprint = kModel;
  const int fds[] = {0, 1};
  ASSERT_TRUE(SendMessage(socket.get(), std::as_bytes(std::span(&hello, 1)), fds).ok());
  EXPECT_FALSE(store.AcceptOne().ok());
}

TEST(Attach, VersionsThatDifferNameBoth) {
  MiniStore store;
  const UniqueFd socket = ConnectTo(store.path).value();
  ClientHello hello;
  hello.version = 77;
  ASSERT_TRUE(SendMessage(socket.get(), std::as_bytes(std::span(&hello, 1)), {}).ok());
  const auto client = store.AcceptOne();
  EXPECT_THAT(Message(client.status()), HasSubstr("version 77"));
}

TEST(Attach, AClientChecksWhatItReceives) {
  MiniStore store;
  store.regions.arena_bytes += 4096;  // the store lies about a size
  Pair pair(store);
  EXPECT_FALSE(pair.client.ok());
  EXPECT_THAT(Message(pair.client.status()), HasSubstr("bytes"));
  store.regions.arena_bytes -= 4096;
  store.regions.sealed_arena = true;
  const UniqueFd unsealed = CreateMemfd("unsealed", kArenaBytes).value();
  store.regions.arena_fd = unsealed.get();
  Pair unsealed_pair(store);
  EXPECT_THAT(Message(unsealed_pair.client.status()), HasSubstr("seals"));
}

TEST(Attach, EndIsNoticedOnBothSides) {
  MiniStore store;
  Pair pair(store);
  ASSERT_TRUE(pair.client.ok() && pair.peer.ok());
  std::thread waiter([&] { (*pair.client)->WaitForEnd(); });
  pair.peer->socket.Reset();
  waiter.join();
  Pair second(store);
  ASSERT_TRUE(second.client.ok() && second.peer.ok());
  second.client->reset();
  pollfd ready{second.peer->socket.get(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 10000), 1);
}

TEST(ClientPeer, HostileRingsAreErrorsNotCrashes) {
  std::mt19937_64 random(5);
  const BlockLayout layout = BlockLayout::For(5);
  for (int round = 0; round < 300; ++round) {
    MemoryMap block = MemoryMap::Anonymous(layout.bytes, false).value();
    ClientPeer peer({block.data(), block.size()}, 5, 8);
    for (size_t i = 0; i < layout.bytes; i += 1 + random() % 64) {
      block.data()[i] = static_cast<std::byte>(random());
    }
    std::vector<Request> requests;
    const absl::Status status = peer.TakeRequests(&requests);
    EXPECT_LE(requests.size(), kRequestRing);
    for (const Request& request : requests) EXPECT_LT(request.expert, 8u);
    for (int i = 0; i < 2000; ++i) {
      if (!peer.PushFailure(3, absl::InternalError("x")).ok()) break;
    }
    peer.TakeUses([](const ExpertUse& use) { EXPECT_LT(use.expert, 8u); });
    peer.Wake();
    peer.Pins(4);
  }
}

TEST(ClientPeer, EachInvalidRequestIsRefused) {
  const Request good{RequestOp::kWant, Priority::kPrompt, 7};
  const uint64_t bad[] = {
      0,
      Request{RequestOp::kWant, Priority::kPrompt, 8}.Pack(),
      good.Pack() | 1ull << 48,
      good.Pack() ^ 9ull << 40,
      good.Pack() | 4ull << 32,
      std::numeric_limits<uint64_t>::max(),
  };
  const BlockLayout layout = BlockLayout::For(5);
  for (const uint64_t word : bad) {
    MemoryMap block = MemoryMap::Anonymous(layout.bytes, false).value();
    ClientPeer peer({block.data(), block.size()}, 5, 8);
    auto* ring = reinterpret_cast<uint64_t*>(block.data() + layout.requests);
    ring[0] = good.Pack();
    ring[1] = word;
    reinterpret_cast<BlockHeader*>(block.data())->request_tail = 2;
    std::vector<Request> requests;
    EXPECT_FALSE(peer.TakeRequests(&requests).ok()) << word;
    EXPECT_EQ(requests.size(), 1u);
  }
}

TEST(Failures, TextAndCodeArriveAndAFullRingIsAnError) {
  MiniStore store;
  Pair pair(store);
  ASSERT_TRUE(pair.client.ok() && pair.peer.ok());
  ClientPeer& peer = *pair.peer->peer;
  ArenaClient& client = (*pair.client)->client();
  EXPECT_EQ(client.TakeFailure(), std::nullopt);
  ASSERT_TRUE(peer.PushFailure(6, absl::DataLossError("m.gguf at 4096")).ok());
  ASSERT_TRUE(peer.PushFailure(7, absl::InternalError(std::string(1000, 'y'))).ok());
  const auto first = client.TakeFailure();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->expert, 6u);
  EXPECT_EQ(first->status, absl::DataLossError("m.gguf at 4096"));
  EXPECT_EQ(client.TakeFailure()->status.message().size(), 247u);
  for (uint32_t i = 0; i < kFailureRing; ++i) {
    ASSERT_TRUE(peer.PushFailure(1, absl::InternalError("z")).ok());
  }
  EXPECT_FALSE(peer.PushFailure(1, absl::InternalError("z")).ok());
}

TEST(Uses, ArriveOnceAndInOrderAndTheNewestSurvive) {
  MiniStore store;
  Pair pair(store);
  ASSERT_TRUE(pair.client.ok() && pair.peer.ok());
  ArenaClient& client = (*pair.client)->client();
  const auto take = [&] {
    std::vector<ExpertUse> uses;
    pair.peer->peer->TakeUses([&](const ExpertUse& use) { uses.push_back(use); });
    return uses;
  };
  client.NoteUse({3, ExpertUse::kMaxTokens, false});
  client.NoteUse({1, 7, true});
  std::vector<ExpertUse> uses = take();
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses[0].expert, 3u);
  EXPECT_EQ(uses[0].tokens, ExpertUse::kMaxTokens);
  EXPECT_FALSE(uses[0].prompt);
  EXPECT_EQ(uses[1].expert, 1u);
  EXPECT_EQ(uses[1].tokens, 7u);
  EXPECT_TRUE(uses[1].prompt);
  EXPECT_TRUE(take().empty());
  for (uint32_t i = 0; i < kUseRing + 10; ++i) client.NoteUse({2, i, false});
  uses = take();
  ASSERT_EQ(uses.size(), kUseRing);
  EXPECT_EQ(uses.front().tokens, 10u);
  EXPECT_EQ(uses.back().tokens, kUseRing + 9);
}

}  // namespace
}  // namespace strata::shm
