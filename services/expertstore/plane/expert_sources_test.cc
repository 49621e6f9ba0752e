// Experts out of packs and of copies on several drives: the same bytes, whatever fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/pack/write_pack.h"
#include "services/expertstore/test_support.h"

namespace strata::expertstore {
namespace {

using shm::ArenaClient;
using ::testing::HasSubstr;

constexpr uint32_t kLayers = 3;
constexpr uint32_t kExperts = 16;

std::string MessageOf(const DataPlaneOptions& options) {
  const auto plane = DataPlane::Create(options);
  EXPECT_FALSE(plane.ok());
  return std::string(plane.status().message());
}

class ExpertSources : public testing::Test {
 protected:
  ExpertSources() {
    options_ = OptionsFor(model_, "sources");
    options_.arena_bytes = PlanSlots(model_.geometry, 1ull << 40, 1).value().all_bytes / 3;
  }
  ~ExpertSources() override {
    for (const std::string& path : made_) unlink(path.c_str());
  }

  // A pack of the model with the options' fingerprint.
  std::string WritePack(const std::string& name,
                        quant::WeightLayout layout = quant::WeightLayout::kGguf) {
    pack::Fingerprint fingerprint;
    std::memcpy(fingerprint.data(), options_.fingerprint.data(), fingerprint.size());
    pack::PackHeader header = pack::LayOut(model_.geometry, fingerprint);
    header.layers[0].parts[1].layout = layout;
    std::string content(header.file_bytes, '\0');
    for (pack::PackLayer& layer : header.layers) {
      for (uint32_t e = 0; e < layer.experts; ++e) {
        std::vector<std::span<const std::byte>> parts;
        for (uint32_t p = 0; p < 3; ++p) {
          parts.push_back(model_.Part(layer.layer, e, p));
          std::memcpy(content.data() + layer.offset + e * layer.stride + layer.parts[p].start,
                      parts.back().data(), parts.back().size());
        }
        layer.checksums.push_back(pack::Checksum(parts));
      }
    }
    const std::vector<std::byte> start = pack::Serialize(header);
    std::memcpy(content.data(), start.data(), start.size());
    header_ = header;
    return Write(name, content);
  }
  std::string Write(const std::string& name, const std::string& content) {
    made_.push_back(TestPath(name));
    std::ofstream(made_.back(), std::ios::binary) << content;
    return made_.back();
  }
  std::vector<std::string> CopyModel() {
    std::vector<std::string> copies;
    for (const std::string& file : model_.geometry.files) {
      copies.push_back(file + ".copy");
      std::filesystem::copy_file(file, copies.back());
      made_.push_back(copies.back());
    }
    return copies;
  }
  void FlipByte(const std::string& path, uint64_t offset) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
  }

  // Every expert, twice, through an arena that holds a third.
  void ExpectAllBytes() {
    auto client = Attach(options_);
    for (uint32_t lap = 0; lap < 2; ++lap) {
      for (uint32_t e = 0; e < kLayers * kExperts; ++e) {
        const uint32_t slot = Fetch(client->client(), e);
        ASSERT_TRUE(HasBytes(model_, client->client(), e, slot)) << e;
        client->client().Unpin(slot);
        client->client().Ring();
      }
    }
  }

  const TestModel model_{"sources", kLayers, kExperts};
  DataPlaneOptions options_;
  pack::PackHeader header_;
  std::vector<std::string> made_;
};

TEST_F(ExpertSources, APackIsReadInOnePieceAnExpert) {
  options_.packs = {WritePack("one.pack")};
  options_.slice_bytes = 1 << 20;
  std::atomic<uint64_t> reads{0};
  RunningPlane plane(options_, FakeFactory([&](const ReadOp& op) -> std::optional<int64_t> {
                       EXPECT_EQ(op.file, 0u);
                       ++reads;
                       return std::nullopt;
                     }));
  ExpectAllBytes();
  const DataPlaneStatus status = plane->Status();
  EXPECT_EQ(reads.load(), status.counts.evictions + status.counts.resident);
  EXPECT_EQ(status.counts.second_sources, 0u);
  EXPECT_TRUE(status.packed);
}

TEST_F(ExpertSources, PastThePageCacheToo) {
  options_.packs = {WritePack("direct.pack")};
  RunningPlane plane(options_);
  ExpectAllBytes();
}

TEST_F(ExpertSources, ADamagedExpertComesFromTheModelsFile) {
  options_.packs = {WritePack("damaged.pack")};
  const pack::PackLayer& layer = header_.layers[1];
  FlipByte(options_.packs[0], layer.offset + 5 * layer.stride + layer.parts[2].start + 7);
  testing::internal::CaptureStderr();
  uint64_t bad = 0;
  {
    RunningPlane plane(options_);
    ExpectAllBytes();
    bad = plane->Status().counts.bad_checksums;
    EXPECT_EQ(plane->Status().counts.second_sources, bad);
    EXPECT_EQ(plane->Status().counts.failed_loads, 0u);
  }
  EXPECT_GE(bad, 2u);  // at each load: once, and once more
  EXPECT_EQ(bad % 2, 0u);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("expert 5 of layer 2 does not have the checksum"));
  EXPECT_THAT(log, HasSubstr("from the model's own file"));
}

TEST_F(ExpertSources, WrongBytesEverywhereAreAnErrorAndNeverServed) {
  options_.packs = {WritePack("wrong.pack")};
  const pack::PackLayer& layer = header_.layers[0];
  FlipByte(options_.packs[0], layer.offset + 3 * layer.stride);
  const gguf::ExpertPart& part = model_.geometry.layers[0].parts[0];
  FlipByte(model_.geometry.files[0], part.offset + 3 * part.bytes_per_expert + 1);
  RunningPlane plane(options_);
  auto client = Attach(options_);
  client->client().Push({shm::RequestOp::kWant, shm::Priority::kDecode, 3});
  client->client().Ring();
  std::optional<ArenaClient::FailedRead> failure;
  ASSERT_TRUE(Eventually([&] { return (failure = client->client().TakeFailure()).has_value(); }));
  EXPECT_EQ(failure->expert, 3u);
  EXPECT_EQ(failure->status.code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(client->client().TryPin(3).has_value());
  FlipByte(model_.geometry.files[0], part.offset + 3 * part.bytes_per_expert + 1);
  const uint32_t slot = Fetch(client->client(), 3);
  EXPECT_TRUE(HasBytes(model_, client->client(), 3, slot));
}

TEST_F(ExpertSources, PacksOnTwoDrivesShareTheWork) {
  options_.packs = {WritePack("first.pack"), WritePack("second.pack")};
  std::atomic<uint64_t> bytes[2] = {0, 0};
  RunningPlane plane(options_, FakeFactory([&](const ReadOp& op) -> std::optional<int64_t> {
                       bytes[op.file] += op.bytes;
                       return std::nullopt;
                     }));
  ExpectAllBytes();
  const double share =
      static_cast<double>(bytes[0]) / static_cast<double>(bytes[0].load() + bytes[1].load());
  EXPECT_NEAR(share, 0.5, 0.15);
  EXPECT_EQ(plane->Status().copies, 2u);
}

TEST_F(ExpertSources, ADriveThatFailsLeavesTheWorkToTheOther) {
  options_.packs = {WritePack("first.pack"), WritePack("second.pack")};
  std::atomic<int> failed{0};
  RunningPlane plane(options_, FakeFactory([&](const ReadOp& op) -> std::optional<int64_t> {
                       if (op.file != 0) return std::nullopt;
                       ++failed;
                       return -EIO;
                     }));
  ExpectAllBytes();
  EXPECT_GT(failed.load(), 0);
  EXPECT_EQ(plane->Status().counts.failed_loads, 0u);
  // Left alone after the first failures, not asked for every second expert.
  EXPECT_LE(plane->Status().counts.second_sources, 10u);
}

TEST_F(ExpertSources, ACopyOfTheModelServesWhenTheModelsDriveFails) {
  options_.mirrors = {CopyModel()};
  std::atomic<bool> fail{false};
  std::atomic<uint64_t> reads[4] = {0, 0, 0, 0};
  RunningPlane plane(options_, FakeFactory([&](const ReadOp& op) -> std::optional<int64_t> {
                       ++reads[op.file];
                       if (fail && op.file < 2) return op.file == 0 ? -EIO : 0;
                       return std::nullopt;
                     }));
  ExpectAllBytes();
  for (const auto& count : reads) EXPECT_GT(count.load(), 0u);
  fail = true;
  ExpectAllBytes();
  EXPECT_EQ(plane->Status().counts.failed_loads, 0u);
}

TEST_F(ExpertSources, WhatDoesNotBelongTogetherIsRefusedAtTheStart) {
  const std::string good = WritePack("good.pack");
  options_.packs = {good};
  options_.fingerprint[3] ^= 1;
  EXPECT_THAT(MessageOf(options_), HasSubstr("another model"));
  const std::string other = WritePack("other.pack");
  options_.fingerprint[3] ^= 1;
  options_.packs = {good, other};
  EXPECT_THAT(MessageOf(options_), HasSubstr(other));
  // These experts have no rows.
  options_.packs = {WritePack("tag.pack", quant::WeightLayout::kRows8)};
  EXPECT_THAT(MessageOf(options_), HasSubstr("layer 1 are interleaved"));
  std::filesystem::resize_file(good, std::filesystem::file_size(good) - 4096);
  options_.packs = {good};
  EXPECT_THAT(MessageOf(options_), HasSubstr("cut"));
  options_.packs = {"/nowhere/x.pack"};
  EXPECT_THAT(MessageOf(options_), HasSubstr("/nowhere/x.pack"));
  options_.packs.clear();
  options_.mirrors = {{model_.geometry.files[0]}};
  EXPECT_THAT(MessageOf(options_), HasSubstr("has 1 files"));
}

}  // namespace
}  // namespace strata::expertstore
