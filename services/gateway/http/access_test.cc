#include "services/gateway/http/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "common/base/test_folder.h"
#include "services/gateway/http/listen_address.h"

namespace strata::gateway {
namespace {

using ::testing::HasSubstr;

Request Post(std::vector<std::pair<std::string, std::string>> headers) {
  Request request;
  request.method = "POST";
  request.peer = "[::1]:5555";
  request.headers.Add("Content-Type", "application/json; charset=utf-8");
  bool has_host = false;
  for (const auto& [name, value] : headers) {
    request.headers.Add(name, value);
    has_host |= name == "Host";
  }
  if (!has_host) request.headers.Add("Host", "localhost:8080");
  return request;
}

int StatusOf(const AccessPolicy& policy, Request request) {
  const auto refusal = CheckAccess(policy, false, request);
  return refusal ? refusal->error.status : 200;
}

TEST(Access, HostNamesOfOthersAreRefusedWithoutKeys) {
  AccessPolicy policy;
  policy.allowed_hosts = {"Box.Lan"};
  for (const char* host : {"localhost", "LOCALHOST:1", "a.localhost", "127.0.0.1:8080", "[::1]:80",
                           "192.168.1.7", "box.lan:8080", "localhost."}) {
    EXPECT_EQ(StatusOf(policy, Post({{"Host", host}})), 200) << host;
  }
  for (const char* host : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "",
                           "evil.example:8080", "1.2.3"}) {
    EXPECT_EQ(StatusOf(policy, Post({{"Host", host}})), 403) << host;
  }
}

TEST(Access, OriginsOfOthersAreRefused) {
  AccessPolicy policy;
  policy.allowed_origins = {"https://chat.example"};
  for (const char* origin : {"https://chat.example", "http://localhost:8080"}) {
    EXPECT_EQ(StatusOf(policy, Post({{"Origin", origin}})), 200) << origin;
  }
  for (const char* origin : {"null", "http://evil.example", "https://chat.example.evil.example",
                             "http://localhost:9999", "https://chat.example/"}) {
    EXPECT_EQ(StatusOf(policy, Post({{"Origin", origin}})), 403) << origin;
  }
}

TEST(Access, ContentTypeMustBeJson) {
  for (const char* type :
       {"text/plain", "", "application/x-www-form-urlencoded", "application/jsonx"}) {
    Request request;
    request.method = "POST";
    request.headers.Add("Host", "localhost");
    request.headers.Add("Content-Type", type);
    EXPECT_EQ(StatusOf(AccessPolicy(), request), 415) << type;
  }
}

TEST(Access, ClientAndTenantFollowTheKey) {
  AccessPolicy policy;
  Request request = Post({});
  EXPECT_FALSE(CheckAccess(policy, false, request));
  EXPECT_EQ(request.client, "[::1]");
  EXPECT_EQ(request.tenant, "");
  ASSERT_TRUE(policy.keys.Add("ann", "key-of-ann").ok());
  request = Post({{"x-api-key", "key-of-ann"}});
  EXPECT_FALSE(CheckAccess(policy, false, request));
  EXPECT_EQ(request.client, "key:ann");
  EXPECT_EQ(request.tenant, "");
  ASSERT_TRUE(policy.keys.Add("bob", "key-of-bob").ok());
  EXPECT_FALSE(CheckAccess(policy, false, request));
  EXPECT_EQ(request.tenant, "ann");
}

TEST(Access, PreflightNamesWhatAnAllowedPageMayDo) {
  AccessPolicy policy;
  policy.allowed_origins = {"https://chat.example"};
  Request request;
  request.method = "OPTIONS";
  request.headers.Add("Origin", "https://chat.example");
  request.headers.Add("Access-Control-Request-Headers", "x-stainless-os, authorization");
  request.headers.Add("Access-Control-Request-Private-Network", "true");
  const Headers allowed = PreflightHeaders(policy, request, "POST");
  EXPECT_EQ(allowed.Get("access-control-allow-origin"), "https://chat.example");
  EXPECT_EQ(allowed.Get("access-control-allow-headers"), "x-stainless-os, authorization");
  EXPECT_EQ(allowed.Get("access-control-allow-private-network"), "true");
  Request other;
  other.headers.Add("Origin", "https://evil.example");
  EXPECT_TRUE(PreflightHeaders(policy, other, "POST").fields().empty());
}

TEST(ApiKeys, FileFormatAndMode) {
  const TestFolder folder;
  const std::string path = folder / "keys";
  std::ofstream(path) << "# comment\n\nann: key-of-ann\nbob:key:with:colons\n";
  chmod(path.c_str(), 0600);
  const std::vector<std::string> files = {path};
  auto keys = ApiKeys::Load(files);
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(keys->Find("key-of-ann"), "ann");
  EXPECT_EQ(keys->Find("key:with:colons"), "bob");
  EXPECT_EQ(keys->Find(std::string(1000, 'x')), std::nullopt);
  EXPECT_EQ(keys->Find(std::string_view("key-of-ann\0", 11)), std::nullopt);

  chmod(path.c_str(), 0644);
  keys = ApiKeys::Load(files);
  ASSERT_FALSE(keys.ok());
  EXPECT_THAT(std::string(keys.status().message()), HasSubstr("chmod 600"));

  chmod(path.c_str(), 0600);
  std::ofstream(path) << "justakey\n";
  keys = ApiKeys::Load(files);
  ASSERT_FALSE(keys.ok());
  EXPECT_THAT(std::string(keys.status().message()), HasSubstr(":1: expected 'name:key'"));
  EXPECT_FALSE(ApiKeys::Load(std::vector<std::string>{"/nonexistent/keys"}).ok());
}

TEST(ListenAddress, FormsAndExposure) {
  EXPECT_TRUE(ParseListenAddress("[::1]:8080")->loopback);
  EXPECT_TRUE(ParseListenAddress("localhost:8080")->loopback);
  EXPECT_EQ(ParseListenAddress("127.0.0.1:65535")->port, 65535);
  EXPECT_FALSE(ParseListenAddress("0.0.0.0:80")->loopback);
  for (const char* text : {"", "8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", "host:80",
                           "127.0.0.1:8o", "127.0.0.1:-1"}) {
    EXPECT_FALSE(ParseListenAddress(text).ok()) << text;
  }
  EXPECT_FALSE(CheckListenAddress(*ParseListenAddress("0.0.0.0:80"), false).ok());
  EXPECT_TRUE(CheckListenAddress(*ParseListenAddress("0.0.0.0:80"), true).ok());
  EXPECT_TRUE(CheckListenAddress(*ParseListenAddress("127.0.0.2:80"), false).ok());
}

}  // namespace
}  // namespace strata::gateway
