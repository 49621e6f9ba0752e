// The engine on an arena that holds a part of the experts, against the engine on the mapped file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>
#include <thread>

#include "cli/bench_text.h"
#include "cli/simulate_tiers.h"
#include "common/base/status.h"
#include "common/gguf/expert_geometry.h"
#include "common/tokenizer/tokenizer.h"
#include "common/trace/routing_trace.h"
#include "services/compute/experts/arena_expert_source.h"
#include "services/compute/experts/device_tier.h"
#include "services/expertstore/test_support.h"
#include "tests/engine/local_engine.h"

namespace strata::compute {
namespace {

constexpr const char* kModel = "deploy/demo/strata-demo.gguf";

std::vector<uint32_t> Text(size_t tokens) {
  const auto file = gguf::Model::Open(kModel).value();
  const auto tokenizer = tokenizer::Tokenizer::FromGguf(file->metadata()).value();
  std::string text(cli::kBenchText);
  std::ifstream samples("deploy/demo/samples.txt");
  text.append(std::istreambuf_iterator<char>(samples), {});
  std::vector<uint32_t> ids = tokenizer->Encode(text, /*parse_special=*/false);
  EXPECT_GE(ids.size(), tokens);
  ids.resize(tokens);
  return ids;
}

// A store with room for `percent` of the demo model's experts, full, and an engine that uses it.
class Tiered {
 public:
  // `device_slots`: of a simulated device above the arena.
  explicit Tiered(const std::string& name, uint64_t percent,
                  v1::ComputeConfig config = SmallConfig(), uint32_t device_slots = 0) {
    auto file = gguf::Model::Open(kModel).value();
    expertstore::DataPlaneOptions options;
    options.geometry = gguf::ReadExpertGeometry(*file).value();
    const auto hash = file->Fingerprint();
    std::memcpy(options.fingerprint.data(), hash.data(), options.fingerprint.size());
    options.experts_per_token = 2;
    options.arena_bytes =
        expertstore::PlanSlots(options.geometry, 1ull << 40, 1).value().all_bytes * percent / 100;
    options.attach_path = expertstore::TestPath(name + ".sock");
    store_.emplace(options);
    const auto client = [&options] {
      auto made = std::make_unique<ArenaExpertSource>(
          ArenaExpertSource::Options{options.attach_path, options.fingerprint});
      EXPECT_TRUE(made->WaitUntilReady(20000).ok());
      return made;
    };
    std::unique_ptr<ExpertSource> source = client();
    if (device_slots > 0) {
      const uint64_t expert = options.geometry.layers.back().bytes_per_expert() + 3 * 64;
      source = DeviceTier::Create(std::move(source), client(),
                                  SimulatedDevice::Create(device_slots * expert, 2).value(),
                                  options.geometry, {})
                   .value();
    }
    runtime_ = Runtime::Open(std::move(file), config, std::move(source)).value();
    EXPECT_TRUE(runtime_->StartEngine(nullptr).ok());
    // A test of what happens with a part in memory starts when that part is there.
    while ((*store_)->Status().counts.resident < (*store_)->Status().slots) {
      std::this_thread::yield();
    }
  }
  Engine& engine() { return runtime_->engine(); }
  ExpertCounters counters() { return runtime_->experts()->counters(); }
  policy::Shape shape() {
    policy::Shape shape;
    const expertstore::SlotPlan& plan = (*store_)->plan();
    for (uint32_t e = 0; e < plan.experts; ++e) {
      shape.layer.push_back((*store_)->map().place(e).layer);
      shape.size_class.push_back((*store_)->map().place(e).size_class);
    }
    for (const auto& record : plan.classes) shape.class_slots.push_back(record.slots);
    shape.used_per_layer = 2;
    return shape;
  }
  // Experts that the engine had the store read, before or when they were needed. The store's own
  // count of bytes also grows by what is promoted in the background once a prompt was read.
  uint64_t experts_read() { return counters().misses + counters().looked_ahead; }

  struct Answer {
    std::vector<uint32_t> tokens;
    v1::Usage usage;
  };
  Answer Generate(std::span<const uint32_t> prompt, uint32_t tokens, v1::PromptRouting routing,
                  float bound = 0, float budget = 0, uint32_t resumed = 0) {
    auto sink = std::make_shared<CollectingSink>();
    v1::GenerateRequest request = Request(prompt, tokens);
    request.set_prompt_routing(routing);
    request.set_prompt_routing_bound(bound);
    request.set_prompt_routing_budget(budget);
    request.set_resumed_tokens(resumed);
    EXPECT_TRUE(engine().Generate(std::move(request), sink).ok());
    EXPECT_TRUE(sink->Wait().ok());
    return {sink->tokens(), sink->finish().usage()};
  }

 private:
  std::optional<expertstore::RunningPlane> store_;
  std::unique_ptr<Runtime> runtime_;
};

TEST(PromptRouting, FullEqualsTheMappedFile) {
  const std::vector<uint32_t> prompt = Text(600);
  const auto mapped = OpenLocal(kModel, SmallConfig());
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  const auto want = GenerateGreedy((*mapped)->engine(), prompt, 40);
  ASSERT_TRUE(want.ok()) << want.status();
  Tiered tiered("full", 25);
  const Tiered::Answer got = tiered.Generate(prompt, 40, v1::FULL);
  EXPECT_EQ(got.tokens, *want);
  EXPECT_EQ(got.usage.prompt_routing(), v1::FULL);
  EXPECT_EQ(got.usage.substituted_choices(), 0u);
  EXPECT_EQ(got.usage.bytes_not_read(), 0u);
}

// One chunk of 1,000 tokens, layer by layer, the next layer's experts read while one is computed:
// the answer is that of the resident run, and most of the experts are there when they are needed.
TEST(PromptSweep, ALongChunkEqualsTheResidentRun) {
  const std::vector<uint32_t> prompt = Text(1000);
  v1::ComputeConfig config = SmallConfig();
  config.set_chunk_tokens(1024);
  const auto mapped = OpenLocal(kModel, config);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  const auto want = GenerateGreedy((*mapped)->engine(), prompt, 20);
  ASSERT_TRUE(want.ok()) << want.status();
  for (const char* look_ahead : {"off", "prompt", "always"}) {
    config.set_look_ahead(look_ahead);
    Tiered tiered("sweep", 40, config);
    EXPECT_EQ(tiered.Generate(prompt, 20, v1::FULL).tokens, *want) << look_ahead;
    const ExpertCounters counters = tiered.engine().status().experts;
    EXPECT_EQ(counters.looked_ahead > 0, std::string_view(look_ahead) != "off");
  }
}

TEST(DeviceTier, TokensEqualTheDirectRun) {
  const std::vector<uint32_t> prompt = Text(100);
  const auto mapped = OpenLocal(kModel, SmallConfig());
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  const auto want = GenerateGreedy((*mapped)->engine(), prompt, 200);
  ASSERT_TRUE(want.ok()) << want.status();
  for (const uint64_t percent : {25, 100}) {
    Tiered tiered("device", percent, SmallConfig(), 30);
    // The copy thread may get no processor for a while.
    ExpertCounters counters;
    for (int i = 0; i < 500 && counters.device_hits < 500; ++i) {
      ASSERT_EQ(tiered.Generate(prompt, 200, v1::FULL).tokens, *want);
      counters = tiered.engine().status().experts;
    }
    EXPECT_GE(counters.device_hits, 500u) << counters.uploads << " uploads";
  }
}

TEST(PromptRouting, ResidentReadsNothing) {
  Tiered tiered("resident", 25);
  // One token: it comes from the prompt's last row, so nothing is generated with normal routing.
  const Tiered::Answer answer = tiered.Generate(Text(600), 1, v1::RESIDENT);
  EXPECT_EQ(tiered.experts_read(), 0u);
  EXPECT_EQ(answer.usage.prompt_routing(), v1::RESIDENT);
  // In the last of six layers only the prompt's last row has experts, two as everywhere.
  EXPECT_EQ(answer.usage.routed_choices(), (600u * 5 + 1) * 2);
  EXPECT_GT(answer.usage.substituted_choices(), 0u);
  EXPECT_LT(answer.usage.substituted_choices(), answer.usage.routed_choices());
  EXPECT_GT(answer.usage.kept_router_mass(), 0.1);
  EXPECT_LT(answer.usage.kept_router_mass(), 1.0);
  EXPECT_GT(answer.usage.bytes_not_read(), 0u);
}

TEST(PromptRouting, GuardedIsTheDefaultAndReadsLessTheLooserTheBound) {
  const std::vector<uint32_t> prompt = Text(600);
  uint64_t last_read = UINT64_MAX;
  double last_kept = 1.01;
  for (const float bound : {0.02F, 0.15F, 0.9F}) {
    Tiered tiered("guarded", 25);
    const Tiered::Answer answer =
        tiered.Generate(prompt, 1, v1::PROMPT_ROUTING_UNSPECIFIED, bound, /*budget=*/1);
    EXPECT_EQ(answer.usage.prompt_routing(), v1::GUARDED);
    EXPECT_LT(tiered.experts_read(), last_read) << bound;
    EXPECT_GE(answer.usage.kept_router_mass(), 1 - bound);
    EXPECT_LT(answer.usage.kept_router_mass(), last_kept);
    last_read = tiered.experts_read();
    last_kept = answer.usage.kept_router_mass();
  }
}

TEST(PromptRouting, GuardedReadsATenthOfFullByDefault) {
  const std::vector<uint32_t> prompt = Text(600);
  v1::ComputeConfig config = SmallConfig();
  config.set_look_ahead("off");  // an expert asked for early and then waited for would count twice
  const auto read = [&](v1::PromptRouting routing) {
    Tiered tiered("budget", 25, config);
    tiered.Generate(prompt, 1, routing);
    return tiered.experts_read();
  };
  const uint64_t full = read(v1::FULL);
  const uint64_t guarded = read(v1::GUARDED);
  EXPECT_GT(guarded, 0u);
  EXPECT_LE(guarded * 10, full);
}

// What an answer had generated before compute died is read again as it was: with normal routing.
TEST(PromptRouting, OnlyTheOriginalPromptOfAResumedAnswerIsRestricted) {
  const std::vector<uint32_t> text = Text(160);
  v1::ComputeConfig config = SmallConfig();
  config.set_chunk_tokens(64);  // the border lies inside a chunk
  Tiered tiered("resumed", 25, config);
  const Tiered::Answer answer = tiered.Generate(text, 61, v1::RESIDENT, 0, 0, /*resumed=*/60);
  EXPECT_EQ(answer.usage.prompt_tokens(), 100u);
  // Of the prompt's rows nobody wants one of the last layer: the answer goes on behind them.
  EXPECT_EQ(answer.usage.routed_choices(), 100u * 5 * 2);
  EXPECT_GT(answer.usage.substituted_choices(), 0u);
  // With nothing of the original prompt left to restrict, it is as if FULL had been asked for.
  const Tiered::Answer all = tiered.Generate(text, 170, v1::RESIDENT, 0, 0, /*resumed=*/160);
  EXPECT_EQ(all.usage.routed_choices(), 0u);
  EXPECT_EQ(all.tokens, tiered.Generate(text, 170, v1::FULL, 0, 0, /*resumed=*/160).tokens);
}

TEST(PromptRouting, EverythingInMemoryIsReadInFullByDefault) {
  Tiered tiered("all", 100);
  const Tiered::Answer answer = tiered.Generate(Text(200), 1, v1::PROMPT_ROUTING_UNSPECIFIED);
  EXPECT_EQ(answer.usage.prompt_routing(), v1::FULL);
  const Tiered::Answer resident = tiered.Generate(Text(200), 20, v1::RESIDENT);
  EXPECT_EQ(resident.usage.substituted_choices(), 0u);
  EXPECT_EQ(resident.usage.kept_router_mass(), 1.0);
  EXPECT_EQ(resident.tokens, tiered.Generate(Text(200), 20, v1::FULL).tokens);
}

// A prompt that is read beside an answer being generated restricts only its own rows.
TEST(PromptRouting, AnAnswerBesideARestrictedPromptIsUnchanged) {
  const std::vector<uint32_t> text = Text(700);
  const std::span<const uint32_t> small = std::span(text).first(30);
  const std::span<const uint32_t> large = std::span(text).subspan(30);
  v1::ComputeConfig config = SmallConfig();
  config.set_chunk_tokens(32);
  Tiered tiered("beside", 25, config);
  const std::vector<uint32_t> alone = tiered.Generate(small, 30, v1::FULL).tokens;
  auto sink = std::make_shared<CollectingSink>();
  v1::GenerateRequest request = Request(small, 30);
  request.set_prompt_routing(v1::FULL);
  ASSERT_TRUE(tiered.engine().Generate(std::move(request), sink).ok());
  sink->WaitForTokens(1);
  const Tiered::Answer beside = tiered.Generate(large, 1, v1::RESIDENT);
  EXPECT_GT(beside.usage.substituted_choices(), 0u);
  ASSERT_TRUE(sink->Wait().ok());
  EXPECT_EQ(sink->tokens(), alone);
}

// The simulator replays what an engine recorded and must find the engine's own hit rate.
TEST(Simulation, AgreesWithTheEngineOnARecordedRun) {
  const std::string path = expertstore::TestPath("routing.trace");
  for (const uint64_t percent : {25, 50}) {
    policy::Shape shape;
    ExpertCounters engine;
    {
      v1::ComputeConfig config = SmallConfig();
      config.set_trace_file(path);
      Tiered tiered("simulate", percent, config);
      shape = tiered.shape();
      auto sink = std::make_shared<CollectingSink>();
      v1::GenerateRequest request = Request(Text(40), 400);
      request.set_prompt_routing(v1::FULL);
      request.mutable_sampling()->set_temperature(1);  // greedy text repeats itself
      request.mutable_sampling()->set_seed(5);
      ASSERT_TRUE(tiered.engine().Generate(std::move(request), sink).ok());
      ASSERT_TRUE(sink->Wait().ok());
      engine = tiered.counters();
    }
    const auto trace = trace::ReadFile(path);
    ASSERT_TRUE(trace.ok()) << trace.status();
    policy::Shape none = shape;
    std::fill(none.class_slots.begin(), none.class_slots.end(), 0U);
    auto tiers = cli::TierSimulation::Create(shape, none, "auto").value();
    tiers.Fill();
    cli::TierCounts sum;
    uint64_t choices = 0;
    for (const trace::Batch& batch : trace->batches) {
      std::vector<trace::Use> uses = batch.uses;
      for (trace::Use& use : uses) {
        use.expert += batch.layer * trace->experts;
        choices += use.tokens;
      }
      const cli::TierCounts counts = tiers.Run(batch.prompt, uses);
      sum.ram += counts.ram;
      sum.drive += counts.drive;
    }
    // Of the prompt, the last layer computes one row.
    EXPECT_EQ(choices, (40u * 5 + 1 + 399 * 6) * 2);
    ASSERT_EQ(sum.all(), engine.hits + engine.misses);
    const auto all = static_cast<double>(sum.all());
    const double simulated = static_cast<double>(sum.ram) / all;
    const double measured = static_cast<double>(engine.hits) / all;
    EXPECT_NEAR(simulated, measured, 0.05) << percent;
    EXPECT_GT(measured, 0.1);
    EXPECT_LT(measured, 0.95);
    std::cout << percent << " % in memory: hit rate " << measured << ", simulated " << simulated
              << "\n";
  }
  unlink(path.c_str());
}

}  // namespace
}  // namespace strata::compute
