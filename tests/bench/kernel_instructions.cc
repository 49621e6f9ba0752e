// Runs each product kernel a little, for tests/bench/kernel-instructions to count under Valgrind.
//
//   kernel_instructions [TYPE...]
//
// Prints a line "TYPE ROWS PRODUCTS" for each case, in the order of the calls of CountedProducts.
#include <cstdio>
#include <string>
#include <string_view>

#include "services/compute/cpu/cpu_backend.h"
#include "services/compute/kernel_bench/product_case.h"

// Valgrind counts inside this function and finds it by its name.
extern "C" [[gnu::noinline]] void CountedProducts(strata::compute::ProductCase* product) {
  product->Run();
}

namespace strata::bench {
namespace {

// What Valgrind knows: it has no AVX-512.
constexpr char kIsa[] = "avx2";

int Main(int count, char** names) {
  const auto backend = compute::CreateCpuBackend({.threads = 1, .isa = kIsa});
  if (!backend.ok()) {
    std::fprintf(stderr, "%s\n", std::string(backend.status().message()).c_str());
    return 1;
  }
  for (const TensorTypeInfo& info : AllTensorTypes()) {
    bool wanted = count == 0;
    for (int i = 0; i < count; ++i) wanted = wanted || info.name == names[i];
    if (!wanted || !compute::testing::IsWeightType(info.type)) continue;
    for (const int64_t rows : {1, 32}) {
      const compute::ProductShape shape{
          .type = info.type, .inputs = 2048, .outputs = 64, .rows = rows};
      const auto product = compute::ProductCase::Create(backend->get(), shape);
      if (!product.ok()) return 1;
      (*product)->Run();  // the first call allocates
      std::printf("%s %d %.0f\n", std::string(info.name).c_str(), static_cast<int>(rows),
                  shape.products());
      std::fflush(stdout);
      CountedProducts(product->get());
    }
  }
  return 0;
}

}  // namespace
}  // namespace strata::bench

int main(int argc, char** argv) { return strata::bench::Main(argc - 1, argv + 1); }
