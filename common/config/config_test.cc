#include "common/config/config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace strata::config {
namespace {

TEST(Config, TypoGivesLineAndColumn) {
  v1::Config config;
  const absl::Status status =
      MergeText("model: \"x.gguf\"\ncompute {\n  thread: 4\n}\n", "strata.textproto", config);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("strata.textproto:3:"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("thread"), absl::string_view::npos) << status;
}

TEST(Config, LaterTextWins) {
  v1::Config config;
  ASSERT_TRUE(MergeText("compute { threads: 4 chunk_tokens: 64 }", "a", config).ok());
  ASSERT_TRUE(MergeText("compute { threads: 2 }", "b", config).ok());
  EXPECT_EQ(config.compute().threads(), 2);
  EXPECT_EQ(config.compute().chunk_tokens(), 64);
  // Also within one text: a section may be written in several places.
  ASSERT_TRUE(
      MergeText("compute { threads: 3 } compute { spin_us: 5 threads: 1 }", "c", config).ok());
  EXPECT_EQ(config.compute().threads(), 1);
  EXPECT_EQ(config.compute().spin_us(), 5);
}

TEST(Config, DefaultsConnectTheDaemons) {
  v1::Config config;
  config.set_runtime_dir("/run/x");
  config.set_state_dir("/var/x");
  ASSERT_TRUE(FillDefaults(config).ok());
  EXPECT_EQ(config.compute().listen(), "unix:/run/x/compute.sock");
  EXPECT_EQ(config.gateway().compute(), config.compute().listen());
  EXPECT_EQ(config.compute().kvstore(), config.kvstore().listen());
  EXPECT_EQ(config.kvstore().path(), "/var/x/kv");
  EXPECT_EQ(config.gateway().listen(0), "127.0.0.1:8080");
  EXPECT_EQ(config.gateway().splice(), "safe");
  EXPECT_EQ(config.gateway().plan_timeout_ms(), 200u);
}

TEST(Config, WrongValueIsNamed) {
  v1::Config config;
  config.mutable_compute()->set_kv_type("q3");
  const absl::Status status = FillDefaults(config);
  EXPECT_NE(status.message().find("compute.kv_type"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("q3"), absl::string_view::npos) << status;
}

TEST(Config, LayoutOfExpertsIsOneOfThree) {
  v1::Config config;
  ASSERT_TRUE(FillDefaults(config).ok());
  EXPECT_EQ(config.expertstore().layout(), "auto");
  config.mutable_expertstore()->set_layout("rows4");
  EXPECT_NE(FillDefaults(config).message().find("expertstore.layout"), absl::string_view::npos);
}

TEST(Config, ADeviceTierNeedsItsSize) {
  v1::Config config;
  v1::DeviceTierConfig& device = *config.mutable_compute()->mutable_device_tier();
  ASSERT_TRUE(FillDefaults(config).ok());
  EXPECT_EQ(device.device(), "none");
  device.set_device("simulated");
  const absl::Status status = FillDefaults(config);
  EXPECT_NE(status.message().find("compute.device_tier.bytes"), absl::string_view::npos) << status;
  device.set_bytes(1 << 20);
  EXPECT_TRUE(FillDefaults(config).ok());
  device.set_copy_gbs(-1);
  EXPECT_FALSE(FillDefaults(config).ok());
}

TEST(Config, MissingFileIsNamed) {
  const auto config = ReadFile("/nonexistent/strata.textproto");
  EXPECT_EQ(config.status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace strata::config
