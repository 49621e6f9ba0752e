// llama.cpp runs some pre-tokenizers through std::regex, which recurses for every character of a
// word: calls into it need more stack than a thread usually has.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdlib>
#include <functional>

namespace strata::tokenizer {

inline void RunWithLargeStack(const std::function<void()>& work) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, size_t{1} << 29);  // reserved, not used, unless needed
  pthread_t thread;
  const auto run = [](void* w) -> void* {
    (*static_cast<const std::function<void()>*>(w))();
    return nullptr;
  };
  if (pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&work)) != 0) {
    std::abort();
  }
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

}  // namespace strata::tokenizer
