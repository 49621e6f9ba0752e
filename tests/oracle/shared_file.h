// Where the large test inputs lie that are not part of the repository.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

namespace strata::oracle {

// A path in the folder named by STRATA_SHARED, by default `shared` beside the checkout (tests run
// in the root of the repository). The file need not exist: skip the test if it does not.
inline std::string SharedFile(std::string_view name) {
  const char* folder = std::getenv("STRATA_SHARED");
  return std::string(folder != nullptr ? folder : "../shared").append("/").append(name);
}

}  // namespace strata::oracle
