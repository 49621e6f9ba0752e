#include "services/gateway/api/info.h"

#include <algorithm>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "common/base/status.h"
#include "services/gateway/json/json.h"

namespace strata::gateway {
namespace {

namespace json = boost::json;

Response Json(const json::object& object) {
  Response response;
  response.body = ToJson(object);
  return response;
}

// Different clients look for the context length under different names; all of them are given.
json::object ModelJson(const ApiContext& context, const std::string& id) {
  json::object model{{"id", id},
                     {"object", "model"},
                     {"type", "model"},
                     {"display_name", context.model->name()},
                     {"created", context.started_unix},
                     {"owned_by", "strata"}};
  json::array aliases;
  for (const std::string& alias : context.aliases) aliases.emplace_back(alias);
  model["aliases"] = std::move(aliases);
  model["status"] = json::object{
      {"value", context.engine->state() == EngineState::kReady ? "loaded" : "loading"}};
  json::object architecture;
  architecture["input_modalities"] = json::array({"text"});
  architecture["output_modalities"] = json::array({"text"});
  model["architecture"] = std::move(architecture);
  const auto description = context.engine->description();
  if (description == nullptr) return model;
  model["max_model_len"] = description->context_length();
  model["context_length"] = description->context_length();
  model["meta"] = json::object{{"n_vocab", description->vocab_size()},
                               {"n_ctx_train", description->context_trained()},
                               {"n_ctx", description->context_length()},
                               {"n_params", description->parameters()},
                               {"size", description->model_bytes()}};
  return model;
}

}  // namespace

Response ListModels(const ApiContext& context, const Request&) {
  json::array data;
  data.push_back(ModelJson(context, context.model->name()));
  // Some clients refuse a name that is not listed.
  for (const std::string& alias : context.aliases) data.push_back(ModelJson(context, alias));
  json::object list{{"object", "list"}};
  list["data"] = std::move(data);
  list["has_more"] = false;
  return Json(list);
}

Response ShowModel(const ApiContext& context, const Request& request) {
  const std::string& id = request.path_parameter;
  const bool known =
      id == context.model->name() ||
      std::find(context.aliases.begin(), context.aliases.end(), id) != context.aliases.end();
  if (known) return Json(ModelJson(context, id));
  ApiError error;
  error.status = 404;
  error.code = "model_not_found";
  error.param = "model";
  error.message = absl::StrCat("The model '", id, "' does not exist here.");
  return ErrorResponse(error);
}

Response ShowProperties(const ApiContext& context, const Request&) {
  const v1::SamplingParams& sampling = context.model->default_sampling();
  const auto description = context.engine->description();
  const uint32_t context_length = description == nullptr ? 0 : description->context_length();
  json::object params{{"temperature", sampling.temperature()},
                      {"top_k", sampling.top_k()},
                      {"top_p", sampling.has_top_p() ? sampling.top_p() : 1},
                      {"min_p", sampling.has_min_p() ? sampling.min_p() : 0}};
  json::object settings{{"n_ctx", context_length}};
  settings["params"] = std::move(params);
  json::object props;
  props["default_generation_settings"] = std::move(settings);
  props["total_slots"] = description == nullptr ? 0 : description->max_sequences();
  props["model_alias"] = context.model->name();
  props["chat_template"] = std::string(context.model->chat_template());
  props["modalities"] = json::object{{"vision", false}, {"audio", false}};
  props["build_info"] = "strata";
  return Json(props);
}

Response Health(const ApiContext& context, const Request&) {
  if (context.engine->state() == EngineState::kReady) {
    return Json(json::object({{"status", "ok"}}));
  }
  ApiError error;
  error.status = 503;
  error.message = absl::StrCat("The model is not ready: ", context.engine->reason());
  error.retry_after_s = 1;
  return ErrorResponse(error);
}

Response Welcome(const ApiContext&, const Request&) {
  Response response;
  response.content_type = "text/plain; charset=utf-8";
  response.body = "Strata is running. The API is under /v1.\n";
  return response;
}

Response MetricsText(const ApiContext& context, uint32_t connections) {
  Metrics::Gauges gauges;
  gauges.running = context.admission->running();
  gauges.waiting = context.admission->waiting();
  gauges.connections = connections;
  Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = context.metrics->Text(gauges, context.engine->status());
  return response;
}

}  // namespace strata::gateway
