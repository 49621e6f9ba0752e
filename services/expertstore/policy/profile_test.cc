#include "services/expertstore/policy/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace strata::expertstore {
namespace {

using ::testing::HasSubstr;

class ProfileTest : public testing::Test {
 protected:
  ProfileTest()
      : folder_(testing::TempDir() + "profile_" + std::to_string(getpid())),
        path_(folder_ + "/experts.profile") {}
  ~ProfileTest() override {
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }
  absl::Status Save(const std::vector<ProfileEntry>& entries) {
    return SaveProfile(path_, FormatProfile({77, entries}, model_));
  }
  const shm::Fingerprint model_ = {0xab, 0xcd};
  const std::string folder_;
  const std::string path_;
};

TEST_F(ProfileTest, ComesBackAsSaved) {
  EXPECT_EQ(LoadProfile(path_, model_).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(Save({{1, 2, 0.5}, {47, 511, 1234.5}}).ok());
  ASSERT_TRUE(Save({{1, 2, 0.25}, {47, 511, 1234.5}, {0, 0, 0}}).ok());
  const auto profile = LoadProfile(path_, model_);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->saved_at, 77);
  const std::vector<ProfileEntry>& entries = profile->entries;
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].value, 0.25);
  EXPECT_EQ(entries[1].layer, 47u);
  EXPECT_EQ(entries[1].index, 511u);
  EXPECT_EQ(entries[1].value, 1234.5);
}

TEST_F(ProfileTest, IsNotUsedForAnotherModel) {
  ASSERT_TRUE(Save({{1, 2, 0.5}}).ok());
  EXPECT_EQ(LoadProfile(path_, {1}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ProfileTest, DamagedLinesAreNamed) {
  for (const std::string bad :
       {"x", "1 2", "1 2 nan", "1 2 -1", "1 2 3 4", "-1 2 3x", "1 2 1e999"}) {
    ASSERT_TRUE(Save({{1, 2, 0.5}}).ok());
    std::ofstream(path_, std::ios::app) << bad << "\n";
    const auto entries = LoadProfile(path_, model_);
    EXPECT_EQ(entries.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(entries.status().message()), HasSubstr("line 3")) << bad;
  }
}

TEST_F(ProfileTest, AFullOrForbiddenDiskIsAnErrorAndKeepsTheOldFile) {
  ASSERT_TRUE(Save({{1, 2, 0.5}}).ok());
  EXPECT_FALSE(SaveProfile("/proc/nothing/here", "").ok());
  EXPECT_FALSE(SaveProfile("/dev/full/x", "").ok());
  EXPECT_TRUE(LoadProfile(path_, model_).ok());
}

}  // namespace
}  // namespace strata::expertstore
