#include "services/compute/experts/mapped_expert_source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "common/gguf/writer.h"

namespace strata::compute {
namespace {

// A model with experts in layers 0 and 2, written and read back.
TEST(MappedExpertSource, HandsOutTheFilesBytes) {
  const std::string path = testing::TempDir() + "mapped_" + std::to_string(getpid()) + ".gguf";
  constexpr uint32_t kExperts = 5;
  std::mt19937 random(1);
  std::vector<std::vector<std::byte>> tensors;
  {
    auto writer = gguf::Writer::Create(path);
    ASSERT_TRUE(writer.ok()) << writer.status();
    writer->Set("general.architecture", std::string("test"));
    std::vector<std::string> names;
    for (const int layer : {0, 2}) {
      for (const char* part : {"gate", "up", "down"}) {
        names.push_back("blk." + std::to_string(layer) + ".ffn_" + part + "_exps.weight");
        const bool down = part[0] == 'd';
        writer->DeclareTensor(names.back(), TensorType::kF32,
                              {down ? 6u : 4u, down ? 4u : 6u, kExperts});
        std::vector<std::byte> bytes(4 * 6 * kExperts * sizeof(float));
        for (std::byte& b : bytes) b = static_cast<std::byte>(random());
        tensors.push_back(bytes);
      }
    }
    for (size_t i = 0; i < names.size(); ++i) {
      ASSERT_TRUE(writer->WriteTensor(names[i], tensors[i]).ok());
    }
    ASSERT_TRUE(writer->Finish().ok());
  }
  const auto model = gguf::Model::Open(path);
  ASSERT_TRUE(model.ok()) << model.status();
  unlink(path.c_str());
  const auto geometry = gguf::ReadExpertGeometry(**model);
  ASSERT_TRUE(geometry.ok()) << geometry.status();
  const auto source = MappedExpertSource::Create(**model, *geometry);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_TRUE((*source)->WaitUntilReady(0).ok());

  const std::vector<ExpertId> batch = {{2, 4}, {0, 1}, {2, 0}};
  for (int round = 1; round <= 2; ++round) {
    (*source)->LookAhead(batch, ExpertPriority::kDecode);
    (*source)->Begin(batch, ExpertPriority::kDecode);
    const auto ready = (*source)->Next();
    ASSERT_TRUE(ready.ok());
    ASSERT_EQ(ready->size(), 3u);
    for (uint32_t i = 0; i < 3; ++i) {
      EXPECT_EQ((*ready)[i].position, i);
      EXPECT_EQ((*ready)[i].id, batch[i]);
      for (int p = 0; p < 3; ++p) {
        const auto& tensor = tensors[(batch[i].layer == 0 ? 0 : 3) + p];
        const size_t bytes = tensor.size() / kExperts;
        EXPECT_EQ(
            std::memcmp((*ready)[i].parts.part[p], tensor.data() + batch[i].index * bytes, bytes),
            0);
      }
    }
    EXPECT_TRUE((*source)->Next()->empty());
    (*source)->End();
    EXPECT_EQ((*source)->counters().hits, 3u * round);
  }
}

}  // namespace
}  // namespace strata::compute
