#include "services/gateway/template/jinja_oracle.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <utility>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "common/base/status.h"

namespace strata::gateway {
namespace {

constexpr char kProgram[] = "services/gateway/template/testdata/jinja_oracle.py";

std::string Slurp(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

absl::StatusOr<std::vector<OracleAnswer>> AskJinja(const std::vector<OracleRequest>& requests) {
  const char* scratch = std::getenv("TMPDIR");
  const std::string base =
      absl::StrCat(scratch == nullptr ? "/tmp" : scratch, "/strata-jinja-", getpid());
  const std::string input = base + ".in";
  const std::string output = base + ".out";
  {
    std::ofstream file(input);
    for (const OracleRequest& request : requests) {
      boost::json::object line;
      line["template"] = request.source;
      line["variables"] = request.variables;
      line["now"] = kOracleNow;
      file << boost::json::serialize(line) << "\n";
    }
  }
  const std::string command =
      absl::StrCat("/usr/bin/python3 -c 'import jinja2' 2>/dev/null && ",
                   "PYTHONUTF8=1 /usr/bin/python3 ", kProgram, " < ", input, " > ", output);
  const int rc = std::system(command.c_str());  // NOLINT(bugprone-command-processor)
  const std::string text = Slurp(output);
  unlink(input.c_str());
  unlink(output.c_str());
  if (rc != 0) {
    return absl::UnavailableError(
        "needs /usr/bin/python3 with jinja2 (apt-get install python3-jinja2)");
  }
  std::vector<OracleAnswer> answers;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    boost::json::error_code error;
    const boost::json::value line = boost::json::parse(text.substr(begin, end - begin), error);
    if (error) return absl::InternalError(absl::StrCat("oracle: ", error.message()));
    const boost::json::object& object = line.as_object();
    OracleAnswer answer;
    answer.ok = object.contains("text");
    answer.raised = !answer.ok && object.at("raised").as_bool();
    const boost::json::string& value = object.at(answer.ok ? "text" : "error").as_string();
    answer.text.assign(value.data(), value.size());
    answers.push_back(std::move(answer));
    begin = end + 1;
  }
  if (answers.size() != requests.size()) {
    return absl::InternalError(
        absl::StrCat("oracle: ", requests.size(), " requests, ", answers.size(), " answers"));
  }
  return answers;
}

}  // namespace strata::gateway
