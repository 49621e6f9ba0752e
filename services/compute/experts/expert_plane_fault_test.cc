// Processes that die: the store under its clients, a client with pins in the store. The test runs
// itself again as "store" or "client", so that what is killed is a process of its own.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "services/compute/experts/arena_expert_source.h"
#include "services/expertstore/test_support.h"

extern char** environ;

namespace strata::compute {
namespace {

using expertstore::DataPlane;
using expertstore::DataPlaneOptions;
using expertstore::TestModel;

constexpr uint32_t kLayers = 3;
constexpr uint32_t kExperts = 32;
constexpr int kReadyMs = 30000;

// A store with room for a quarter of the experts.
DataPlaneOptions StoreOptions(const TestModel& model) {
  DataPlaneOptions options = expertstore::OptionsFor(model, "faults");
  options.arena_bytes = expertstore::PlanSlots(model.geometry, 1ull << 40, 1).value().all_bytes / 4;
  return options;
}

ArenaExpertSource::Options ClientOptions(const TestModel& model) {
  const DataPlaneOptions options = StoreOptions(model);
  return {options.attach_path, options.fingerprint, 200};
}

std::vector<ExpertId> Choose(std::mt19937& random, uint32_t count) {
  const auto layer = static_cast<uint16_t>(1 + random() % kLayers);
  std::vector<ExpertId> all;
  for (uint16_t e = 0; e < kExperts; ++e) all.push_back({layer, e});
  std::shuffle(all.begin(), all.end(), random);
  all.resize(count);
  return all;
}

// One batch, every byte checked. Internal = wrong bytes.
absl::Status RunBatch(ExpertSource& source, const TestModel& model,
                      std::span<const ExpertId> experts) {
  source.Begin(experts, ExpertPriority::kDecode);
  absl::Status status;
  for (;;) {
    const auto ready = source.Next();
    status = ready.status();
    if (!status.ok() || ready->empty()) break;
    for (const ReadyExpert& expert : *ready) {
      if (!model.Same(expert.id.layer, expert.id.index, expert.parts.part)) {
        status = absl::InternalError("wrong bytes");
      }
    }
    if (!status.ok()) break;
  }
  source.End();
  return status;
}

// --- what the started processes do -----------------------------------------------------------

int RunStore() {
  const TestModel model("faults", kLayers, kExperts, /*write=*/false);
  auto plane = DataPlane::Create(StoreOptions(model));
  if (!plane.ok()) return 1;
  (*plane)->Run();
  return 0;
}

// Works through batches until there were `batches` good ones, through any number of store deaths.
int RunClient(uint32_t seed, int batches) {
  const TestModel model("faults", kLayers, kExperts, /*write=*/false);
  ArenaExpertSource source(ClientOptions(model));
  std::mt19937 random(seed);
  while (batches > 0) {
    const absl::Status ready = source.WaitUntilReady(kReadyMs);
    if (!ready.ok()) return 2;
    const absl::Status status = RunBatch(source, model, Choose(random, 8));
    if (status.ok()) {
      --batches;
    } else if (!absl::IsUnavailable(status)) {
      return 3;
    }
  }
  return 0;
}

// Pins all it can get, says so, and stays.
int RunPinner() {
  const TestModel model("faults", kLayers, kExperts, /*write=*/false);
  const DataPlaneOptions options = StoreOptions(model);
  auto attachment = shm::Attachment::Connect(options.attach_path, options.fingerprint);
  if (!attachment.ok()) return 2;
  shm::ArenaClient& client = (*attachment)->client();
  for (uint32_t pinned = 0; pinned < client.table().slots();) {
    for (uint32_t e = 0; e < client.table().experts(); ++e) pinned += client.TryPin(e) ? 1 : 0;
  }
  if (write(STDOUT_FILENO, "!", 1) != 1) return 3;
  for (;;) pause();
}

// --- starting them ---------------------------------------------------------------------------

class Child {
 public:
  // `output`: where its standard output goes.
  explicit Child(const std::vector<std::string>& args, int output = STDERR_FILENO) {
    std::vector<char*> argv = {const_cast<char*>("self")};
    for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    EXPECT_EQ(posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Child() { Kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void Signal(int number) { kill(pid_, number); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    Wait();
  }
  // Its exit code, or -1 if it was killed.
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = 0;
};

class ExpertPlaneFaults : public testing::Test {
 protected:
  ExpertPlaneFaults() { setenv("EXPERT_TEST_OWNER", std::to_string(getpid()).c_str(), 1); }
  const TestModel model_{"faults", kLayers, kExperts};
};

TEST_F(ExpertPlaneFaults, AKilledStoreLeavesPinnedBytesAndANewOneIsFound) {
  auto store = std::make_unique<Child>(std::vector<std::string>{"store"});
  ArenaExpertSource source(ClientOptions(model_));
  ASSERT_TRUE(source.WaitUntilReady(kReadyMs).ok());
  for (int round = 1; round <= 3; ++round) {
    std::mt19937 random(round);
    const auto experts = Choose(random, 4);
    source.Begin(experts, ExpertPriority::kDecode);
    const auto ready = source.Next();
    ASSERT_TRUE(ready.ok()) << ready.status();
    ASSERT_FALSE(ready->empty());
    store->Kill();
    for (const ReadyExpert& expert : *ready) {
      EXPECT_TRUE(model_.Same(expert.id.layer, expert.id.index, expert.parts.part));
    }
    source.End();
    // More experts than were ever resident: some must miss.
    absl::Status status;
    while (status.ok()) status = RunBatch(source, model_, Choose(random, 32));
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    store = std::make_unique<Child>(std::vector<std::string>{"store"});
    ASSERT_TRUE(source.WaitUntilReady(kReadyMs).ok());
    status = RunBatch(source, model_, experts);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(source.counters().connections, static_cast<uint64_t>(round + 1));
  }
}

TEST_F(ExpertPlaneFaults, AWaiterIsToldWhenTheStoreDies) {
  Child store({"store"});
  ArenaExpertSource source(ClientOptions(model_));
  ASSERT_TRUE(source.WaitUntilReady(kReadyMs).ok());
  store.Signal(SIGSTOP);  // it will not answer
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    store.Kill();
  });
  std::mt19937 random(5);
  const absl::Status status = RunBatch(source, model_, Choose(random, 32));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  killer.join();
}

TEST_F(ExpertPlaneFaults, AKilledClientsPinsVanish) {
  Child store({"store"});
  ArenaExpertSource source(ClientOptions(model_));
  ASSERT_TRUE(source.WaitUntilReady(kReadyMs).ok());
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  Child pinner({"pinner"}, pipe_ends[1]);
  char said;
  ASSERT_EQ(read(pipe_ends[0], &said, 1), 1);  // every slot is pinned now
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    pinner.Kill();
  });
  std::mt19937 random(5);
  const absl::Status status = RunBatch(source, model_, Choose(random, 32));
  EXPECT_TRUE(status.ok()) << status;
  killer.join();
}

TEST_F(ExpertPlaneFaults, ClientsWorkThroughStoreDeaths) {
  auto store = std::make_unique<Child>(std::vector<std::string>{"store"});
  std::vector<std::unique_ptr<Child>> clients;
  for (int c = 0; c < 3; ++c) {
    clients.push_back(
        std::make_unique<Child>(std::vector<std::string>{"client", std::to_string(c), "150"}));
  }
  for (int death = 0; death < 3; ++death) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    store.reset();
    store = std::make_unique<Child>(std::vector<std::string>{"store"});
  }
  for (const auto& client : clients) EXPECT_EQ(client->Wait(), 0);
}

TEST_F(ExpertPlaneFaults, ClientsThatDieDoNotDisturbTheOthers) {
  Child store({"store"});
  Child steady({"client", "77", "200"});
  for (int c = 0; c < 8; ++c) {
    Child brief({"client", std::to_string(c), "1000000"});
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }  // killed in the middle of whatever it does
  EXPECT_EQ(steady.Wait(), 0);
}

}  // namespace
}  // namespace strata::compute

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "store") return strata::compute::RunStore();
  if (role == "pinner") return strata::compute::RunPinner();
  if (role == "client") return strata::compute::RunClient(std::atoi(argv[2]), std::atoi(argv[3]));
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
