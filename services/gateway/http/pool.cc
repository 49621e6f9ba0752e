#include "services/gateway/http/pool.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace strata::gateway {

namespace asio = boost::asio;

struct WorkPool::Threads {
  explicit Threads(int n) : pool(static_cast<size_t>(n)) {}
  asio::thread_pool pool;
};

namespace {
asio::awaitable<void> Call(std::function<void()> work) {
  work();
  co_return;
}
}  // namespace

WorkPool::WorkPool(int threads) : threads_(std::make_unique<Threads>(threads)) {}
WorkPool::~WorkPool() { threads_->pool.join(); }

asio::awaitable<void> WorkPool::Run(std::function<void()> work) {
  co_await asio::co_spawn(threads_->pool, Call(std::move(work)), asio::use_awaitable);
}

}  // namespace strata::gateway
