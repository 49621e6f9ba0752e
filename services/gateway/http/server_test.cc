#include "services/gateway/http/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include <boost/asio/awaitable.hpp>

#include "common/base/eventually.h"
#include "services/gateway/http/pool.h"
#include "services/gateway/http/wake.h"
#include "services/gateway/json/json.h"
#include "services/gateway/testing/raw_client.h"

namespace strata::gateway {
namespace {

using std::chrono::milliseconds;
using testing::Fetch;
using ::testing::HasSubstr;
using testing::RawClient;
using testing::RawResponse;
namespace asio = boost::asio;

asio::awaitable<void> Echo(Exchange& exchange) {
  Response response;
  response.content_type = "text/plain";
  response.body = exchange.request().path + "|" + exchange.request().query + "|" +
                  exchange.request().path_parameter + "|" + exchange.request().body;
  co_await exchange.Respond(std::move(response));
}

class ServerTest : public ::testing::Test {
 protected:
  void StartServer(ServerOptions options) {
    options.listen = {"127.0.0.1:0"};
    options.auth_failure_delay_ms = 0;
    auto server = HttpServer::Start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    Router router;
    router.Add({"GET", "/echo", false, Echo});
    router.Add({"POST", "/echo", false, Echo});
    router.Add({"GET", "/items/{id}", false, Echo});
    router.Add({"GET", "/public", true, Echo});
    router.Add({"GET", "/throws", false, [](Exchange&) -> asio::awaitable<void> {
                  throw std::bad_alloc();
                  co_return;
                }});
    router.Add({"GET", "/silent", false, [](Exchange&) -> asio::awaitable<void> { co_return; }});
    // Works until its client goes away.
    router.Add({"POST", "/wait", false, [this](Exchange& exchange) -> asio::awaitable<void> {
                  const auto wake = Wake::Create(exchange.executor());
                  exchange.OnGone([wake] { wake->Notify(); });
                  ++waiting_;
                  while (!exchange.gone() && !release_) {
                    co_await wake->WaitUntil(Wake::Clock::now() + milliseconds(20));
                  }
                  --waiting_;
                  if (exchange.gone()) ++gone_;
                  Response response;
                  response.body = "released";
                  co_await exchange.Respond(std::move(response));
                }});
    // Sends more than socket buffers hold.
    router.Add({"GET", "/flood", false, [this](Exchange& exchange) -> asio::awaitable<void> {
                  const std::string piece(1 << 20, 'x');
                  bool alive = co_await exchange.StartStream("text/event-stream");
                  for (int i = 0; alive && i < 64; ++i) alive = co_await exchange.Write(piece);
                  if (!alive) ++gone_;
                  co_await exchange.EndStream();
                }});
    server_->Serve(std::move(router));
    port_ = server_->ports()[0];
  }
  void SetUp() override { StartServer(ServerOptions()); }

  std::atomic<int> waiting_ = 0;
  std::atomic<int> gone_ = 0;
  std::atomic<bool> release_ = false;
  std::unique_ptr<HttpServer> server_;
  uint16_t port_ = 0;
};

TEST_F(ServerTest, AnswersAndKeepsTheConnection) {
  RawClient client(port_);
  for (int i = 0; i < 3; ++i) {
    client.SendRequest("POST", "/echo?a=1", "hello");
    const RawResponse response = client.Read();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "/echo|a=1||hello");
    EXPECT_FALSE(response.headers.at("x-request-id").empty());
  }
}

TEST_F(ServerTest, PipelinedRequestsAreAnsweredInOrder) {
  RawClient client(port_);
  std::string text;
  for (int i = 0; i < 20; ++i) {
    text +=
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: 2\r\n\r\n" +
        std::to_string(10 + i);
  }
  client.Send(text);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(client.Read().body, "/echo|||" + std::to_string(10 + i));
}

TEST_F(ServerTest, ChunkedBodyByteByByte) {
  RawClient client(port_);
  const std::string text =
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n5;x=y\r\ndefgh\r\n0\r\n\r\n";
  for (const char c : text) client.Send(std::string(1, c));
  EXPECT_EQ(client.Read().body, "/echo|||abcdefgh");
}

TEST_F(ServerTest, ExpectContinueIsAnsweredBeforeTheBody) {
  RawClient client(port_);
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.Read().status, 100);
  client.Send("body");
  EXPECT_EQ(client.Read().body, "/echo|||body");
}

TEST_F(ServerTest, ExpectContinueIsRefusedBeforeTheBody) {
  RawClient client(port_);
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
      "Content-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.Read().status, 415);
}

TEST_F(ServerTest, RoutingErrors) {
  EXPECT_EQ(Fetch(port_, "GET", "/nothing").status, 404);
  const RawResponse wrong_method = Fetch(port_, "DELETE", "/echo");
  EXPECT_EQ(wrong_method.status, 405);
  EXPECT_EQ(wrong_method.headers.at("allow"), "GET, HEAD, POST, OPTIONS");
  EXPECT_EQ(Fetch(port_, "GET", "/items/a%2Fb/c:d%20e").body, "/items/a/b/c:d e||a/b/c:d e|");
  const auto parsed = ParseJson(Fetch(port_, "GET", "/nothing").body);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->at("error").at("type").as_string(), "not_found_error");
  EXPECT_TRUE(parsed->at("error").at("param").is_null());
}

TEST_F(ServerTest, HeadHasNoBody) {
  RawClient client(port_);
  client.SendRequest("HEAD", "/echo");
  ASSERT_TRUE(client.WaitFor("\r\n\r\n"));
  EXPECT_THAT(client.received(), HasSubstr("Content-Length: 8"));
  client.SendRequest("GET", "/items/x");
  EXPECT_TRUE(client.WaitFor("/items/x||x|"));
}

TEST_F(ServerTest, AbsoluteFormAndHttp10) {
  RawClient client(port_);
  client.Send("GET http://localhost:1/echo?q HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.Read().body, "/echo|q||");
  RawClient old(port_);
  old.Send("GET /echo HTTP/1.0\r\nHost: localhost\r\n\r\n");
  const RawResponse response = old.Read();
  EXPECT_EQ(response.body, "/echo|||");
  EXPECT_EQ(response.headers.at("connection"), "close");
  EXPECT_TRUE(old.WaitClosed());
}

TEST_F(ServerTest, RequestIdIsEchoedOrReplaced) {
  EXPECT_EQ(Fetch(port_, "GET", "/echo", "", "x-request-id: abc-1.2\r\n").headers["x-request-id"],
            "abc-1.2");
  const std::string long_id(500, 'a');
  EXPECT_NE(
      Fetch(port_, "GET", "/echo", "", "x-request-id: " + long_id + "\r\n").headers["x-request-id"],
      long_id);
  EXPECT_EQ(Fetch(port_, "GET", "/echo", "", "x-request-id: <b>\r\n")
                .headers["x-request-id"]
                .substr(0, 4),
            "req-");
}

TEST_F(ServerTest, HandlerFailuresBecome500AndTheServerLives) {
  EXPECT_EQ(Fetch(port_, "GET", "/throws").status, 500);
  EXPECT_EQ(Fetch(port_, "GET", "/silent").status, 500);
  EXPECT_EQ(Fetch(port_, "GET", "/echo").status, 200);
}

TEST_F(ServerTest, BrokenRequestsAreRefused) {
  for (const char* text :
       {"NONSENSE\r\n\r\n", "GET /echo HTTP/9.9\r\n\r\n", "GET  HTTP/1.1\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: "
        "4\r\n\r\nabc",
        "GET /echo HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n",
        "GET /echo HTTP/1.1\r\n\r\n"}) {
    RawClient client(port_);
    client.Send(text);
    EXPECT_EQ(client.Read().status, 400) << text;
    EXPECT_TRUE(client.WaitClosed());
  }
  EXPECT_EQ(Fetch(port_, "GET", "/echo").status, 200);
}

TEST_F(ServerTest, Limits) {
  ServerOptions options;
  options.max_body_bytes = 1000;
  options.max_header_bytes = 1000;
  StartServer(options);
  EXPECT_EQ(Fetch(port_, "POST", "/echo", std::string(1000, 'x')).status, 200);
  EXPECT_EQ(Fetch(port_, "POST", "/echo", std::string(1001, 'x')).status, 413);
  EXPECT_EQ(Fetch(port_, "POST", "/echo", std::string(5 << 20, 'x')).status, 413);
  EXPECT_EQ(Fetch(port_, "GET", "/echo", "", "X: " + std::string(2000, 'x') + "\r\n").status, 431);
  RawClient chunked(port_);
  chunked.Send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n800\r\n" +
      std::string(2048, 'y'));
  EXPECT_EQ(chunked.Read().status, 413);
}

TEST_F(ServerTest, SlowHeadersAndBodiesAreDropped) {
  ServerOptions options;
  options.header_timeout_ms = 150;
  options.body_timeout_ms = 150;
  StartServer(options);
  RawClient headers(port_);
  headers.Send("GET /echo HTTP/1.1\r\n");
  RawClient body(port_);
  body.Send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 100\r\n\r\nabc");
  RawClient trickle(port_);
  trickle.Send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 100000\r\n\r\n");
  bool open = true;
  for (int i = 0; open && i < 200; ++i) {  // each byte comes in time, all of them never would
    open = trickle.Send("z");
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_FALSE(open);
  EXPECT_TRUE(headers.WaitClosed());
  EXPECT_TRUE(body.WaitClosed());
  EXPECT_TRUE(Eventually([&] { return server_->connections() == 0; }));
}

TEST_F(ServerTest, ReaderThatTakesNothingIsDropped) {
  ServerOptions options;
  options.write_timeout_ms = 200;
  StartServer(options);
  RawClient client(port_);
  client.ShrinkReceiveBuffer();
  client.SendRequest("GET", "/flood");
  EXPECT_TRUE(Eventually([&] { return gone_ == 1; }));
}

TEST_F(ServerTest, DisconnectIsNoticedWhileAHandlerWorks) {
  for (const int how : {0, 1, 2}) {
    gone_ = 0;
    RawClient client(port_);
    client.SendRequest("POST", "/wait", "{}");
    ASSERT_TRUE(Eventually([&] { return waiting_ == 1; }));
    if (how == 0) client.Close();
    if (how == 1) client.Reset();
    if (how == 2) client.ShutdownSend();
    EXPECT_TRUE(Eventually([&] { return gone_ == 1 && waiting_ == 0; })) << how;
  }
  EXPECT_TRUE(Eventually([&] { return server_->connections() == 0; }));
}

TEST_F(ServerTest, DisconnectBehindAPipelinedRequest) {
  RawClient client(port_);
  client.SendRequest("POST", "/wait", "{}");
  client.SendRequest("GET", "/echo");
  ASSERT_TRUE(Eventually([&] { return waiting_ == 1; }));
  std::this_thread::sleep_for(milliseconds(50));
  client.Close();
  EXPECT_TRUE(Eventually([&] { return gone_ == 1; }));
}

TEST_F(ServerTest, ConnectionCapAnswers503) {
  ServerOptions options;
  options.max_connections = 3;
  std::atomic<int> refused = 0;
  options.on_connection_refused = [&] { ++refused; };
  StartServer(options);
  std::vector<std::unique_ptr<RawClient>> idle;
  for (int i = 0; i < 3; ++i) idle.push_back(std::make_unique<RawClient>(port_));
  ASSERT_TRUE(Eventually([&] { return server_->connections() == 3; }));
  const RawResponse response = Fetch(port_, "GET", "/echo");
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.headers.at("retry-after"), "1");
  EXPECT_EQ(refused, 1);
  idle.clear();
  ASSERT_TRUE(Eventually([&] { return server_->connections() == 0; }));
  EXPECT_EQ(Fetch(port_, "GET", "/echo").status, 200);
}

TEST_F(ServerTest, AFloodOfConnectionsDoesNotHurt) {
  ServerOptions options;
  options.max_connections = 20;
  StartServer(options);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 400; ++i) {
    clients.push_back(std::make_unique<RawClient>(port_));
    if (i % 2 == 0) clients.back()->Send("GET /echo HTTP/1.1\r\nHost: loc");
  }
  clients.clear();
  ASSERT_TRUE(Eventually([&] { return server_->connections() == 0; }));
  EXPECT_EQ(Fetch(port_, "GET", "/echo").status, 200);
}

TEST_F(ServerTest, KeysAreNeededExceptOnPublicRoutes) {
  ServerOptions options;
  ASSERT_TRUE(options.access.keys.Add("me", "secret-key-1").ok());
  StartServer(options);
  EXPECT_EQ(Fetch(port_, "GET", "/public").status, 200);
  const RawResponse refused = Fetch(port_, "GET", "/echo");
  EXPECT_EQ(refused.status, 401);
  EXPECT_THAT(refused.body, HasSubstr("\"type\":\"authentication_error\""));
  EXPECT_EQ(Fetch(port_, "GET", "/nothing").status, 401);
  for (const char* header :
       {"Authorization: Bearer secret-key-1\r\n", "authorization: bearer secret-key-1\r\n",
        "x-api-key: secret-key-1\r\n", "api-key: secret-key-1\r\n"}) {
    EXPECT_EQ(Fetch(port_, "GET", "/echo", "", header).status, 200) << header;
  }
  for (const char* header :
       {"Authorization: Bearer secret-key-2\r\n", "Authorization: Bearer secret-key-1x\r\n",
        "x-api-key: secret-key-\r\n", "Authorization: Basic secret-key-1\r\n", "x-api-key: \r\n"}) {
    EXPECT_EQ(Fetch(port_, "GET", "/echo", "", header).status, 401) << header;
  }
}

TEST_F(ServerTest, GracefulStopFinishesRunningRequests) {
  RawClient idle(port_);
  RawClient busy(port_);
  busy.SendRequest("POST", "/wait", "{}");
  ASSERT_TRUE(Eventually([&] { return waiting_ == 1; }));
  std::thread stopper([&] { server_->Stop(120000); });
  EXPECT_TRUE(idle.WaitClosed());
  release_ = true;
  const RawResponse response = busy.Read();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("connection"), "close");
  busy.Close();
  stopper.join();
  EXPECT_FALSE(RawClient(port_).connected());
}

TEST_F(ServerTest, StopWithoutGraceDropsThem) {
  RawClient busy(port_);
  busy.SendRequest("POST", "/wait", "{}");
  ASSERT_TRUE(Eventually([&] { return waiting_ == 1; }));
  server_->Stop(0);
  EXPECT_EQ(gone_, 1);
}

TEST_F(ServerTest, PortInUseIsNamed) {
  ServerOptions options;
  options.listen = {"127.0.0.1:" + std::to_string(port_)};
  const auto second = HttpServer::Start(options);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use"));
}

TEST(WorkPool, RunsElsewhereAndComesBack) {
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  auto server = HttpServer::Start(options);
  ASSERT_TRUE(server.ok());
  WorkPool pool(2);
  std::atomic<bool> moved = false;
  std::atomic<bool> returned = false;
  Router router;
  router.Add({"GET", "/", true, [&](Exchange& exchange) -> asio::awaitable<void> {
                const auto home = std::this_thread::get_id();
                std::thread::id away;
                co_await pool.Run([&] { away = std::this_thread::get_id(); });
                moved = away != home;
                returned = std::this_thread::get_id() == home;
                co_await exchange.Respond(Response());
              }});
  (*server)->Serve(std::move(router));
  EXPECT_EQ(Fetch((*server)->ports()[0], "GET", "/").status, 200);
  EXPECT_TRUE(moved);
  EXPECT_TRUE(returned);
}

}  // namespace
}  // namespace strata::gateway
