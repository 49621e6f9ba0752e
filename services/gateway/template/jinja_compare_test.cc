// The interpreter against Python's jinja2: a list of small templates, and random expressions.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <boost/json/parse.hpp>

#include "services/gateway/template/chat_template.h"
#include "services/gateway/template/jinja_oracle.h"

namespace strata::gateway {
namespace {

constexpr char kData[] = "services/gateway/template/testdata/";

std::string Slurp(const std::string& name) {
  std::ifstream in(kData + name);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

boost::json::object Variables() { return boost::json::parse(Slurp("variables.json")).as_object(); }

// One template a line, "↵" for a line break.
std::vector<std::string> Expressions() {
  std::istringstream in(Slurp("expressions.txt"));
  std::vector<std::string> sources;
  const std::string mark = "↵";
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    for (size_t i = line.find(mark); i != std::string::npos; i = line.find(mark)) {
      line.replace(i, mark.size(), "\n");
    }
    sources.push_back(line);
  }
  return sources;
}

absl::StatusOr<std::vector<ChatTemplate::Piece>> Render(const OracleRequest& request) {
  const absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(request.source);
  if (!parsed.ok()) return parsed.status();
  RenderOptions options;
  options.now_seconds = kOracleNow;
  return parsed->Render(request.variables, {}, options);
}

OracleAnswer Ours(const OracleRequest& request) {
  OracleAnswer answer;
  const absl::StatusOr<std::vector<ChatTemplate::Piece>> pieces = Render(request);
  answer.ok = pieces.ok();
  answer.text = pieces.ok() ? JoinPieces(*pieces) : std::string(pieces.status().message());
  answer.raised = !pieces.ok() && RaisedByTemplate(pieces.status());
  return answer;
}

// Both fail, or both give the same text. A message is compared only if the template raised it.
void Compare(const std::vector<OracleRequest>& requests) {
  const absl::StatusOr<std::vector<OracleAnswer>> answers = AskJinja(requests);
  if (absl::IsUnavailable(answers.status())) GTEST_SKIP() << answers.status().message();
  ASSERT_TRUE(answers.ok()) << answers.status();
  for (size_t i = 0; i < requests.size(); ++i) {
    const OracleAnswer& theirs = (*answers)[i];
    const OracleAnswer ours = Ours(requests[i]);
    const bool same = ours.ok == theirs.ok && ours.raised == theirs.raised &&
                      ((!ours.ok && !ours.raised) || ours.text == theirs.text);
    EXPECT_TRUE(same) << "template: " << requests[i].source << "\n  ours  "
                      << (ours.ok ? "" : "(error) ") << ours.text << "\n  jinja "
                      << (theirs.ok ? "" : "(error) ") << theirs.text;
  }
}

TEST(AgainstJinja, Expressions) {
  setenv("TZ", "UTC", 1);
  std::vector<OracleRequest> requests;
  for (std::string& source : Expressions()) requests.push_back({std::move(source), Variables()});
  ASSERT_GT(requests.size(), 250U);
  Compare(requests);
}

// Writes random templates: expressions over the variables, and statements around them.
class Generator {
 public:
  explicit Generator(uint32_t seed) : random_(seed) {}

  std::string Template() {
    std::string out;
    for (int i = Below(3); i >= 0; --i) out += Statement(2);
    return out;
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  template <size_t N>
  std::string Pick(const char* const (&choices)[N]) {
    return choices[Below(static_cast<int>(N))];
  }

  std::string Statement(int depth) {
    const int kind = depth == 0 ? Below(2) : Below(8);
    switch (kind) {
      case 0:
        return Pick({" ", "\n", "x", "  \n  ", "a\n", "{# c #}", "\n{#- c -#}\n"});
      case 1:
      case 2:
        return Open("{{") + Expression(3) + Close("}}");
      case 3:
        return Tag("if " + Expression(2)) + Statement(depth - 1) + Tag("else") +
               Statement(depth - 1) + Tag("endif");
      case 4:
        return Tag("for q in " + Sequence(1)) + "{{ q }}" + Statement(depth - 1) + Tag("endfor");
      case 5:
        return Tag("set v = " + Expression(2)) + "{{ v }}";
      case 6:
        return Tag("set v") + Statement(depth - 1) + Tag("endset") + "{{ v }}";
      default:
        return Tag("filter " + Pick({"upper", "trim", "title", "indent"})) + Statement(depth - 1) +
               Tag("endfilter");
    }
  }
  std::string Open(const std::string& s) { return s + Pick({" ", "- ", " ", " "}); }
  std::string Close(const std::string& s) { return Pick({" ", " -", " ", " "}) + s; }
  std::string Tag(const std::string& body) {
    return Pick({"", "", "  ", "\n", "\n  "}) + Open("{%") + body + Close("%}") +
           Pick({"", "", "\n", " \n"});
  }

  std::string Expression(int depth) {
    if (depth == 0) return Atom();
    switch (Below(14)) {
      case 0:
        return Atom();
      case 1:
        return "(" + Expression(depth - 1) + ")";
      case 2:
        return Expression(depth - 1) + Pick({" + ", " - ", " * ", " ~ ", " // ", " % "}) +
               Expression(depth - 1);
      case 3:
        return Expression(depth - 1) + Pick({" == ", " != ", " < ", " >= "}) +
               Expression(depth - 1);
      case 4:
        return Expression(depth - 1) + Pick({" and ", " or "}) + Expression(depth - 1);
      case 5:
        return "not " + Expression(depth - 1);
      case 6:
        return Expression(depth - 1) + " if " + Expression(depth - 1) + " else " +
               Expression(depth - 1);
      case 7:
        return Expression(depth - 1) + " | " + Pick(kFilters);
      case 8:
        return Expression(depth - 1) + Pick({" is ", " is not "}) + Pick(kTests);
      case 9:
        return Expression(depth - 1) + Pick({" in ", " not in "}) + Sequence(depth - 1);
      case 10:
        return Sequence(depth - 1) + "[" + Pick(kSlices) + "]";
      case 11:
        return Sequence(depth - 1);
      case 12:
        return Text(depth - 1) + Pick(kMethods);
      default:
        return Text(depth - 1);
    }
  }
  std::string Sequence(int depth) {
    if (depth <= 0) return Pick({"list", "names", "mixed", "nested", "s", "d", "none_list", "uni"});
    switch (Below(5)) {
      case 0:
        return "[" + Expression(depth - 1) + ", " + Expression(depth - 1) + "]";
      case 1:
        return "(" + Expression(depth - 1) + ", " + Expression(depth - 1) + ")";
      case 2:
        return "(" + Sequence(depth - 1) + " | list)";
      case 3:
        return "(" + Sequence(depth - 1) + " | sort)";
      default:
        return Sequence(0);
    }
  }
  std::string Text(int depth) {
    if (depth <= 0)
      return Pick({"s", "words", "uni", "padded", "lines", "quote", "'aXa'", "empty"});
    return "(" + Text(depth - 1) + Pick({" ~ ", " + "}) + Text(depth - 1) + ")";
  }
  std::string Atom() {
    return Pick({"i", "v",       "zero", "neg",   "f",    "tiny", "whole",   "t",
                 "n", "missing", "s",    "empty", "list", "d.a",  "d['zz']", "objs[0].name",
                 "1", "-2",      "0.5",  "'x'",   "true", "none", "3"});
  }

  static constexpr const char* kFilters[] = {"upper",
                                             "lower",
                                             "trim",
                                             "length",
                                             "string",
                                             "list",
                                             "first",
                                             "last",
                                             "int",
                                             "float",
                                             "default('z')",
                                             "default('z', true)",
                                             "tojson",
                                             "join('-')",
                                             "replace('a', 'b')",
                                             "title",
                                             "capitalize",
                                             "abs",
                                             "round",
                                             "sum",
                                             "min",
                                             "max",
                                             "unique | list",
                                             "sort",
                                             "reverse | list",
                                             "indent(2)",
                                             "wordcount",
                                             "tojson(indent=1)",
                                             "items | list",
                                             "select | list",
                                             "d",
                                             "escape | string"};
  static constexpr const char* kTests[] = {
      "defined", "undefined", "none",     "string",   "number", "integer",        "float",
      "boolean", "mapping",   "sequence", "iterable", "true",   "false",          "odd",
      "even",    "lower",     "upper",    "in list",  "eq 1",   "divisibleby(2)", "gt 1"};
  static constexpr const char* kSlices[] = {"0",   "-1",  "1:",     ":2",  "::-1", "1:-1",  "9",
                                            "::2", "-2:", "2:0:-1", ":-9", "'a'",  "none:1"};
  static constexpr const char* kMethods[] = {".strip()",
                                             ".upper()",
                                             ".split()",
                                             ".split('a')",
                                             ".replace('l', 'LL')",
                                             ".title()",
                                             ".startswith('h')",
                                             ".find('l')",
                                             ".splitlines()",
                                             ".count('a')",
                                             ".rstrip()",
                                             ".lower()",
                                             ".rsplit(none, 1)",
                                             ".partition(' ')",
                                             ".capitalize()",
                                             ".isdigit()",
                                             ".zfill(9)",
                                             ".split(' ', 1)",
                                             ".endswith('\\n')",
                                             ".isalpha()"};
  std::mt19937 random_;
};

TEST(AgainstJinja, RandomTemplates) {
  std::vector<OracleRequest> requests;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    requests.push_back({Generator(seed).Template(), Variables()});
  }
  Compare(requests);
}

}  // namespace
}  // namespace strata::gateway
