// One request being answered: what a handler sees of its connection.
#pragma once

#include <functional>
#include <string_view>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "services/gateway/http/message.h"

namespace strata::gateway {

// A handler answers either with Respond once, or with StartStream, any number of Write, EndStream.
// All calls come from the server's one thread, and so do the OnGone callbacks.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const Request& request() const = 0;
  virtual boost::asio::any_io_executor executor() const = 0;

  virtual boost::asio::awaitable<void> Respond(Response response) = 0;

  // Status 200 and headers; the body follows piece by piece. The functions return false when the
  // client is gone or takes nothing for the write timeout: the handler should stop its work.
  virtual boost::asio::awaitable<bool> StartStream(std::string_view content_type) = 0;
  virtual boost::asio::awaitable<bool> Write(std::string_view bytes) = 0;
  virtual boost::asio::awaitable<void> EndStream() = 0;

  // True once the client closed its connection (or its sending half: like other servers we take
  // that as the end of its interest) or the server is being stopped.
  virtual bool gone() const = 0;
  // Called once when gone() becomes true; an empty function removes it.
  virtual void OnGone(std::function<void()> callback) = 0;
  // A response or stream was begun.
  virtual bool started() const = 0;
};

using Handler = std::function<boost::asio::awaitable<void>(Exchange&)>;

}  // namespace strata::gateway
