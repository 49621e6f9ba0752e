// A folder of one test's own: tests of several builds may run on a machine at the same time, so a
// fixed name in the folder for temporary files would be shared with the others.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <ios>
#include <string>
#include <system_error>

namespace strata {

// Made by the constructor, removed with everything in it by the destructor.
class TestFolder {
 public:
  TestFolder() {
    std::string pattern = ::testing::TempDir() + "strata-test-XXXXXX";
    const char* const made = mkdtemp(pattern.data());
    EXPECT_NE(made, nullptr) << "no folder can be made in " << ::testing::TempDir();
    path_ = pattern;
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  std::string Save(const std::string& name, const std::string& content) const {
    std::ofstream(*this / name, std::ios::binary) << content;
    return *this / name;
  }

 private:
  std::string path_;
};

}  // namespace strata
