// Long computations (parsing, templates, tokenising a large prompt) away from the server's thread.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/awaitable.hpp>

namespace strata::gateway {

class WorkPool {
 public:
  explicit WorkPool(int threads);
  ~WorkPool();
  // Runs `work` on a pool thread and resumes the caller on its own executor.
  boost::asio::awaitable<void> Run(std::function<void()> work);

 private:
  struct Threads;
  std::unique_ptr<Threads> threads_;
};

}  // namespace strata::gateway
