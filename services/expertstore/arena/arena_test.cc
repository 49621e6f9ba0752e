#include "services/expertstore/arena/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>

#include "common/base/memory_map.h"
#include "common/quant/weight_layout.h"
#include "common/shm/memfd.h"
#include "common/shm/table.h"
#include "services/expertstore/arena/slot_plan.h"

namespace strata::expertstore {
namespace {

using ::testing::HasSubstr;

gguf::ExpertGeometry RandomGeometry(std::mt19937_64& random) {
  gguf::ExpertGeometry geometry;
  geometry.files = {"a", "b", "c"};
  uint64_t at = 32 * (random() % 1000);
  const uint32_t layers = 1 + random() % 8;
  for (uint32_t l = 0; l < layers; ++l) {
    gguf::ExpertLayer layer;
    layer.layer = l * 2 + 1;
    layer.experts = 1 + random() % 40;
    const uint32_t parts = 1 + random() % 3;
    for (uint32_t p = 0; p < parts; ++p) {
      gguf::ExpertPart part;
      part.file = random() % 3;
      part.offset = at;
      part.bytes_per_expert = 32 * (1 + random() % 3000);
      at += part.bytes_per_expert * layer.experts;
      layer.parts.push_back(part);
    }
    geometry.layers.push_back(layer);
  }
  return geometry;
}

// For random models and budgets: the slots fit the budget, no two overlap, and in any slot of its
// class every part of every expert lies inside the slot, where the table says it is, block-aligned
// as read, and apart from the other parts.
TEST(SlotPlan, EveryExpertFitsEverySlotOfItsClass) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    const gguf::ExpertGeometry geometry = RandomGeometry(random);
    const SlotPlan all = PlanSlots(geometry, 1ull << 50, 4).value();
    EXPECT_EQ(all.slots, all.experts);
    EXPECT_EQ(all.bytes, all.all_bytes);
    const uint64_t budget = all.least_bytes + random() % (all.all_bytes + 1);
    const SlotPlan plan = PlanSlots(geometry, budget, 4).value();
    ASSERT_LE(plan.bytes, budget);
    uint64_t end = 0;
    uint32_t slots = 0;
    for (const shm::ClassRecord& record : plan.classes) {
      ASSERT_EQ(record.arena_offset, end);
      ASSERT_EQ(record.first_slot, slots);
      ASSERT_EQ(record.slot_bytes % 4096, 0u);
      ASSERT_GE(record.slots, 1u);
      end += record.slots * record.slot_bytes;
      slots += record.slots;
    }
    ASSERT_EQ(end, plan.bytes);
    ASSERT_EQ(slots, plan.slots);

    const ExpertMap map(*FindExpertFiles(geometry, {}, {}, {}), plan);
    ASSERT_EQ(map.experts(), plan.experts);
    std::vector<Extent> extents;
    for (uint32_t e = 0; e < plan.experts; ++e) {
      const shm::ClassRecord& record = plan.classes[map.place(e).size_class];
      const uint32_t slot = record.first_slot + random() % record.slots;
      map.Extents(e, slot, 0, nullptr, &extents);
      uint64_t at = record.arena_offset + (slot - record.first_slot) * record.slot_bytes;
      const uint64_t slot_end = at + record.slot_bytes;
      const shm::LayerRecord& layer = plan.layers[map.place(e).layer];
      ASSERT_EQ(extents.size(), layer.parts);
      for (const Extent& extent : extents) {
        const auto dest = reinterpret_cast<uint64_t>(extent.dest);
        ASSERT_GE(dest, at);
        at = dest + extent.bytes;
        ASSERT_LE(at, slot_end);
        ASSERT_EQ(dest % 4096, 0u);
        ASSERT_EQ(extent.offset % 4096, 0u);
        ASSERT_EQ(extent.bytes % 4096, 0u);
        ASSERT_LE(extent.needed, extent.bytes);
      }
    }
  }
}

// Rows are interleaved where kernels gain by it and there are eight of them, nothing else is
// touched.
TEST(ExpertMap, ArrangesWhatWasReadAsTheSlotsHaveIt) {
  gguf::ExpertGeometry geometry;
  geometry.files = {"a"};
  gguf::ExpertLayer layer;
  layer.experts = 3;
  uint64_t at = 96;  // no multiple of a block, so that parts lie askew in slots
  const auto add = [&](TensorType type, uint64_t row_bytes, uint64_t rows) {
    gguf::ExpertPart part;
    part.type = type;
    part.row_bytes = row_bytes;
    part.bytes_per_expert = row_bytes * rows;
    part.offset = at;
    at += part.bytes_per_expert * layer.experts;
    layer.parts.push_back(part);
  };
  add(TensorType::kQ4_K, 2 * 144, 24);
  add(TensorType::kQ4_K, 144, 12);     // not a multiple of eight rows
  add(TensorType::kQ8_0, 4 * 34, 16);  // does not gain
  geometry.layers.push_back(layer);
  const Places places = PlacesInModel(geometry);
  SlotPlan plan = PlanSlots(places, 1 << 20, 1).value();
  const SlotPlan as_read = plan;
  InterleaveSlots(places, &plan);
  using enum quant::WeightLayout;
  EXPECT_EQ(plan.layers[0].layout[0], kRows8);
  EXPECT_EQ(plan.layers[0].layout[1], kGguf);
  EXPECT_EQ(plan.layers[0].layout[2], kGguf);

  std::mt19937 random(3);
  std::vector<std::byte> read(plan.bytes);
  for (std::byte& b : read) b = static_cast<std::byte>(random());
  std::vector<std::byte> scratch;
  std::vector<std::byte> arena = read;
  ExpertMap(*FindExpertFiles(geometry, {}, {}, {}), as_read)
      .Arrange(1, 2, 0, arena.data(), &scratch);
  EXPECT_EQ(arena, read);
  ExpertMap(*FindExpertFiles(geometry, {}, {}, {}), plan).Arrange(1, 2, 0, arena.data(), &scratch);
  const uint64_t start = shm::TableView::PartOffset(plan.layers[0], plan.classes[0], 1, 2, 0);
  std::vector<std::byte> expected = read;
  quant::InterleaveRows(TensorType::kQ4_K, 24, 2 * 144, read.data() + start,
                        expected.data() + start);
  EXPECT_EQ(arena, expected);
  EXPECT_NE(arena, read);
}

TEST(SlotPlan, SharesASmallBudgetByBytes) {
  gguf::ExpertGeometry geometry;
  geometry.files = {"a"};
  for (uint32_t l = 0; l < 4; ++l) {
    gguf::ExpertLayer layer;
    layer.layer = l;
    layer.experts = 100;
    layer.parts.resize(1);
    layer.parts[0].bytes_per_expert = l < 3 ? 40960 : 81920;
    geometry.layers.push_back(layer);
  }
  const SlotPlan all = PlanSlots(geometry, 1ull << 40, 8).value();
  ASSERT_EQ(all.classes.size(), 2u);
  const SlotPlan half = PlanSlots(geometry, all.all_bytes / 2, 8).value();
  EXPECT_NEAR(half.classes[0].slots, 150, 5);
  EXPECT_NEAR(half.classes[1].slots, 50, 5);
}

TEST(SlotPlan, TooSmallSaysHowMuchIsNeeded) {
  std::mt19937_64 random(3);
  const gguf::ExpertGeometry geometry = RandomGeometry(random);
  const SlotPlan all = PlanSlots(geometry, 1ull << 50, 4).value();
  const auto small = PlanSlots(geometry, all.least_bytes - 1, 4);
  EXPECT_EQ(small.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(small.status().message()), HasSubstr(std::to_string(all.least_bytes)));
  EXPECT_TRUE(PlanSlots(geometry, all.least_bytes, 4).ok());
}

TEST(SlotPlan, RefusesImpossibleGeometries) {
  gguf::ExpertGeometry geometry;
  EXPECT_FALSE(PlanSlots(geometry, 1 << 30, 1).ok());
  geometry.layers.resize(1);
  EXPECT_FALSE(PlanSlots(geometry, 1 << 30, 1).ok());
  geometry.layers[0].experts = 2;
  geometry.layers[0].parts.resize(4);
  EXPECT_FALSE(PlanSlots(geometry, 1 << 30, 1).ok());
  geometry.layers[0].parts.resize(1);
  geometry.layers[0].parts[0].offset = ~0ull - 100;
  geometry.layers[0].parts[0].bytes_per_expert = 4096;
  EXPECT_FALSE(PlanSlots(geometry, 1 << 30, 1).ok());
}

TEST(ExpertMap, FileOrderFollowsTheFiles) {
  gguf::ExpertGeometry geometry;
  geometry.files = {"a", "b"};
  for (uint32_t l = 0; l < 2; ++l) {
    gguf::ExpertLayer layer;
    layer.layer = l;
    layer.experts = 2;
    layer.parts.resize(1);
    layer.parts[0].file = 1 - l;  // the first layer lies in the second file
    layer.parts[0].bytes_per_expert = 4096;
    geometry.layers.push_back(layer);
  }
  const SlotPlan plan = PlanSlots(geometry, 1 << 30, 1).value();
  EXPECT_EQ(ExpertMap(*FindExpertFiles(geometry, {}, {}, {}), plan).FileOrder(),
            (std::vector<uint32_t>{2, 3, 0, 1}));
}

TEST(Arena, IsSealedAndAllThere) {
  Arena arena = Arena::Create(5 << 20, 1 << 20).value();
  EXPECT_EQ(arena.size(), 6u << 20);
  ASSERT_TRUE(arena.SealFor(true).ok());
  EXPECT_TRUE(shm::CheckSealed(arena.client_fd(), arena.size(), shm::SealKind::kFixedSize).ok());
  EXPECT_TRUE(shm::CheckReadOnly(arena.client_fd()).ok());
  EXPECT_FALSE(MemoryMap::Shared(arena.client_fd(), arena.size(), /*writable=*/true).ok());
  arena.data()[arena.size() - 1] = std::byte{1};
  EXPECT_EQ(arena.held_bytes(), arena.size());
}

// It does not claim more huge pages than the kernel says the mapping has.
TEST(Arena, CountsItsHugePages) {
  const Arena arena = Arena::Create(8 << 20, 1 << 20).value();
  if (arena.page_bytes() != 4096) GTEST_SKIP() << "the system has reserved huge pages";
  std::ifstream maps("/proc/self/smaps");
  uint64_t mapped = 0;
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('-') < line.find(' ')) inside = line.find("strata-arena") != std::string::npos;
    if (inside && line.starts_with("ShmemPmdMapped:")) mapped += std::stoull(line.substr(15)) << 10;
  }
  EXPECT_LE(arena.huge_bytes(), mapped);
}

TEST(Arena, GivesPagesBackAndTakesThemAgain) {
  Arena arena = Arena::Create(8 << 20, 1 << 20).value();
  ASSERT_TRUE(arena.SealFor(true).ok());
  const MemoryMap client = MemoryMap::Shared(arena.client_fd(), arena.size(), false).value();
  std::fill_n(arena.data(), arena.size(), std::byte{7});
  // Whole pages only: the byte before and the byte after belong to others.
  const uint64_t from = (1 << 20) + 1;
  const uint64_t to = (3 << 20) + 5;
  ASSERT_TRUE(arena.Release(from, to).ok());
  EXPECT_EQ(client.data()[from - 1], std::byte{7});
  EXPECT_EQ(client.data()[to - 1], std::byte{7});
  if (arena.page_bytes() == 4096) {
    EXPECT_EQ(arena.held_bytes(), arena.size() - (2 << 20) + 4096);
  }
  ASSERT_TRUE(arena.Take(from, to));
  EXPECT_EQ(arena.held_bytes(), arena.size());
  EXPECT_EQ(client.data()[2 << 20], std::byte{0});
  arena.data()[2 << 20] = std::byte{9};
  EXPECT_EQ(client.data()[2 << 20], std::byte{9});
}

// A process that may have 20 MiB of a file asks for 64 MiB of arena.
TEST(Arena, ShrinksWhenTheSystemRefuses) {
  const pid_t pid = fork();
  if (pid == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{20 << 20, 20 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto arena = Arena::Create(64 << 20, 4 << 20);
    if (!arena.ok()) _exit(1);
    if (arena->size() < (4u << 20) || arena->size() > (20u << 20)) _exit(2);
    const auto too_small = Arena::Create(64 << 20, 32 << 20);
    if (too_small.status().code() != absl::StatusCode::kResourceExhausted) _exit(3);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Arena, RegistrationPiecesCoverAllSlotsWithoutCuttingOne) {
  SlotPlan plan;
  plan.classes = {{0, 700, 3 << 20, 0}, {700, 5, 400 << 20, 700ull * (3 << 20)}};
  auto* base = reinterpret_cast<std::byte*>(0x100000000);
  const auto pieces = RegistrationPieces(plan, base);
  const std::byte* at = base;
  for (const auto piece : pieces) {
    EXPECT_EQ(piece.data(), at);
    EXPECT_LE(piece.size(), 1ull << 30);
    at += piece.size();
    const uint64_t slot = at <= base + 700ull * (3 << 20) ? 3 << 20 : 400 << 20;
    EXPECT_EQ(piece.size() % slot, 0u);
  }
  EXPECT_EQ(at, base + 700ull * (3 << 20) + 5ull * (400 << 20));
}

}  // namespace
}  // namespace strata::expertstore
