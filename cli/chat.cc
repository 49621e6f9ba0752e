// `strata chat`: a conversation in the terminal.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <iostream>
#include <string>

#include <boost/json.hpp>

#include "cli/command.h"
#include "cli/http_client.h"
#include "common/base/status.h"

#include "absl/flags/flag.h"

ABSL_FLAG(std::string, gateway, "127.0.0.1:8080", "chat: host:port of the gateway.");
ABSL_FLAG(std::string, api_key, "", "chat: key, if the gateway asks for one.");
ABSL_FLAG(std::string, system, "", "chat: system prompt.");
ABSL_FLAG(double, temperature, 0, "chat: 0 gives the most likely answer.");

namespace strata::cli {
namespace {

namespace json = boost::json;

// Set by Ctrl-C while an answer is printed; the handler may do nothing more.
std::atomic<bool> g_interrupted{false};

class InterruptScope {
 public:
  InterruptScope() {
    g_interrupted = false;
    struct sigaction action = {};
    action.sa_handler = [](int) { g_interrupted = true; };
    sigaction(SIGINT, &action, &previous_);  // without SA_RESTART: a waiting read returns
  }
  ~InterruptScope() { sigaction(SIGINT, &previous_, nullptr); }
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  struct sigaction previous_;
};

std::string_view TextAt(const json::value& event, const char* pointer) {
  boost::system::error_code error;
  const json::value* text = event.find_pointer(pointer, error);
  if (text == nullptr || !text->is_string()) return {};
  return {text->get_string().data(), text->get_string().size()};
}

std::string ErrorMessage(const std::string& body) {
  boost::system::error_code error;
  const json::value parsed = json::parse(body, error);
  const std::string_view message = error ? "" : TextAt(parsed, "/error/message");
  return message.empty() ? body : std::string(message);
}

// Prints the answer as it comes and returns it.
absl::StatusOr<std::string> Ask(const json::array& messages) {
  const json::object request = {
      {"messages", messages}, {"stream", true}, {"temperature", absl::GetFlag(FLAGS_temperature)}};
  const InterruptScope interrupt;
  std::string answer;
  std::string failure;
  const absl::StatusOr<HttpResponse> response = HttpPostStream(
      absl::GetFlag(FLAGS_gateway), "/v1/chat/completions", absl::GetFlag(FLAGS_api_key),
      json::serialize(request), [&](std::string_view data) {
        if (g_interrupted || data == "[DONE]") return false;
        boost::system::error_code error;
        const json::value event = json::parse({data.data(), data.size()}, error);
        if (error) return true;
        failure = TextAt(event, "/error/message");
        const std::string_view text = TextAt(event, "/choices/0/delta/content");
        std::cout << text << std::flush;
        answer += text;
        return failure.empty();
      });
  std::cout << "\n";
  if (g_interrupted) {
    std::cout << "(stopped)\n";
    return answer;
  }
  STRATA_RETURN_IF_ERROR(response.status());
  if (response->status != 200) return absl::InternalError(ErrorMessage(response->body));
  if (!failure.empty()) return absl::InternalError(failure);
  return answer;
}

}  // namespace

absl::Status Chat(std::span<const std::string> arguments) {
  STRATA_RETURN_IF_ERROR(ExpectAtMost(arguments, 0));
  const bool terminal = isatty(STDIN_FILENO) == 1;
  if (terminal) {
    std::cout << "Type a message; Ctrl-C stops an answer, Ctrl-D or /exit ends, /new forgets.\n";
  }
  const auto fresh = [] {
    json::array messages;
    if (const std::string system = absl::GetFlag(FLAGS_system); !system.empty()) {
      messages.push_back(json::object{{"role", "system"}, {"content", system}});
    }
    return messages;
  };
  json::array messages = fresh();
  absl::Status last_error;
  for (std::string line;;) {
    if (terminal) std::cout << "> " << std::flush;
    if (!std::getline(std::cin, line) || line == "/exit") break;
    if (line.empty()) continue;
    if (line == "/new") {
      messages = fresh();
      continue;
    }
    messages.push_back(json::object{{"role", "user"}, {"content", line}});
    const absl::StatusOr<std::string> answer = Ask(messages);
    if (answer.ok()) {
      messages.push_back(json::object{{"role", "assistant"}, {"content", *answer}});
      continue;
    }
    messages.pop_back();  // the question was not answered: it may be asked again
    if (!terminal) return answer.status();
    std::cout << "error: " << answer.status().message() << "\n";
  }
  if (terminal) std::cout << "\n";
  return absl::OkStatus();
}

}  // namespace strata::cli
