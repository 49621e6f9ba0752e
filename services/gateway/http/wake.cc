#include "services/gateway/http/wake.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace strata::gateway {

namespace asio = boost::asio;

struct Wake::Timer {
  explicit Timer(const asio::any_io_executor& executor) : timer(executor) {}
  asio::steady_timer timer;
};

Wake::Wake(const asio::any_io_executor& executor) : timer_(std::make_unique<Timer>(executor)) {}
Wake::~Wake() = default;

std::shared_ptr<Wake> Wake::Create(const asio::any_io_executor& executor) {
  return std::shared_ptr<Wake>(new Wake(executor));
}

void Wake::Notify() {
  if (notified_.exchange(true)) return;
  asio::post(timer_->timer.get_executor(),
             [self = shared_from_this()] { self->timer_->timer.cancel(); });
}

asio::awaitable<void> Wake::WaitUntil(Clock::time_point deadline) {
  if (!notified_.exchange(false)) {
    timer_->timer.expires_at(deadline);
    // Notify after the exchange above posts its cancel behind this point, so it is not lost.
    co_await timer_->timer.async_wait(asio::as_tuple(asio::use_awaitable));
    notified_.store(false);
  }
}

}  // namespace strata::gateway
