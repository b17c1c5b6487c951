#include "runtime/serve/Routes.h"

#include <charconv>

namespace tessera::serve {

std::span<const Route> routes() {
  constexpr std::string_view json = "application/json";
  // Of paths under which clients know one thing.
  constexpr std::string_view
      ranking = "Order documents by their relevance to a query",
      scoring = "Score pairs";
  static constexpr Route list[] = {
      {RouteId::completions, kGenerates, "POST", "/v1/completions",
       "Complete prompts", json, "Completion", Endpoint::completions},
      {RouteId::chat, kGenerates, "POST", "/v1/chat/completions",
       "Complete a chat", json, "ChatCompletion", Endpoint::chat},
      {RouteId::responses, kGenerates, "POST", "/v1/responses",
       "Create a response", json, "Response", Endpoint::responses},
      {RouteId::response, kGenerates, "GET", "/v1/responses/{response_id}",
       "Get a stored response, or stream its events", json, "Response"},
      {RouteId::deleteResponse, kGenerates, "DELETE",
       "/v1/responses/{response_id}", "Delete a stored response", json,
       "Deleted"},
      {RouteId::cancelResponse, kGenerates, "POST",
       "/v1/responses/{response_id}/cancel", "Cancel a background response",
       json, "Response"},
      {RouteId::inputItems, kGenerates, "GET",
       "/v1/responses/{response_id}/input_items",
       "List the input items of a response", json, "InputItems"},
      {RouteId::listChats, kGenerates, "GET", "/v1/chat/completions",
       "List stored chats", json, "ChatCompletions"},
      {RouteId::storedChat, kGenerates, "GET",
       "/v1/chat/completions/{completion_id}", "Get a stored chat", json,
       "StoredChatCompletion"},
      {RouteId::updateChat, kGenerates, "POST",
       "/v1/chat/completions/{completion_id}",
       "Replace the metadata of a stored chat", json, "StoredChatCompletion",
       std::nullopt, "MetadataRequest"},
      {RouteId::deleteChat, kGenerates, "DELETE",
       "/v1/chat/completions/{completion_id}", "Delete a stored chat", json,
       "Deleted"},
      {RouteId::chatMessages, kGenerates, "GET",
       "/v1/chat/completions/{completion_id}/messages",
       "List the messages of a stored chat", json, "StoredMessages"},
      {RouteId::embeddings, kEmbeds, "POST", "/v1/embeddings",
       "Compute embeddings", json, "Embeddings", Endpoint::embeddings},
      {RouteId::rerank, kRanks, "POST", "/v1/rerank", ranking, json, "Rerank",
       Endpoint::rerank},
      {RouteId::rerankV2, kRanks, "POST", "/v2/rerank", ranking, json, "Rerank",
       Endpoint::rerank},
      {RouteId::rerankPlain, kRanks, "POST", "/rerank", ranking, json, "Rerank",
       Endpoint::rerank},
      {RouteId::score, kRanks, "POST", "/score", scoring, json, "Score",
       Endpoint::score},
      {RouteId::scoreV1, kRanks, "POST", "/v1/score", scoring, json, "Score",
       Endpoint::score},
      {RouteId::tokenize, kAnyKind, "POST", "/tokenize",
       "Give the tokens of a prompt or a chat", json, "Tokenization",
       Endpoint::tokenize},
      {RouteId::detokenize, kAnyKind, "POST", "/detokenize",
       "Give the text of tokens", json, "Detokenization", Endpoint::detokenize},
      {RouteId::messages, kGenerates, "POST", "/v1/messages",
       "Create a message, as of Anthropic's API", json, "Message",
       Endpoint::messages},
      {RouteId::countTokens, kGenerates, "POST", "/v1/messages/count_tokens",
       "Count the tokens of a message's input", json, "TokenCount",
       Endpoint::countTokens},
      {RouteId::loadAdapter, kGenerates, "POST", "/v1/load_lora_adapter",
       "Load a LoRA adapter into a free slot", "text/plain; charset=utf-8", "",
       std::nullopt, "LoadAdapterRequest"},
      {RouteId::unloadAdapter, kGenerates, "POST", "/v1/unload_lora_adapter",
       "Unload a LoRA adapter; requests in progress keep it",
       "text/plain; charset=utf-8", "", std::nullopt, "UnloadAdapterRequest"},
      {RouteId::createAdapter, kGenerates, "POST", "/v1/training/adapters",
       "Begin an adapter", json, "TrainedAdapter", std::nullopt,
       "CreateAdapterRequest"},
      {RouteId::trainedAdapters, kGenerates, "GET", "/v1/training/adapters",
       "List the adapters that are trained", json, "TrainedAdapters"},
      {RouteId::deleteAdapter, kGenerates, "DELETE",
       "/v1/training/adapters/{adapter}", "Forget an adapter", json, "Deleted"},
      {RouteId::forwardBackward, kGenerates, "POST",
       "/v1/training/adapters/{adapter}/forward_backward",
       "Add the gradients of examples to those of the next step", json,
       "Gradients", std::nullopt, "ForwardBackwardRequest"},
      {RouteId::optimStep, kGenerates, "POST",
       "/v1/training/adapters/{adapter}/optim_step",
       "Make a step of the optimizer", json, "OptimStep", std::nullopt,
       "OptimStepRequest"},
      {RouteId::saveAdapter, kGenerates, "POST",
       "/v1/training/adapters/{adapter}/save",
       "Save an adapter and its optimizer's state", json, "TrainedAdapter",
       std::nullopt, "AdapterPathRequest"},
      {RouteId::restoreAdapter, kGenerates, "POST",
       "/v1/training/adapters/{adapter}/load", "Resume from what was saved",
       json, "TrainedAdapter", std::nullopt, "AdapterPathRequest"},
      {RouteId::models, kAnyKind, "GET", "/v1/models",
       "List the names of the model and its adapters", json, "Models"},
      {RouteId::model, kAnyKind, "GET", "/v1/models/{model}", "Get the model",
       json, "Model"},
      {RouteId::health, kAnyKind, "GET", "/health", "Health of the engine",
       json, "Health"},
      {RouteId::metrics, kAnyKind, "GET", "/metrics", "Prometheus metrics",
       "text/plain; version=0.0.4", ""},
      {RouteId::version, kAnyKind, "GET", "/version", "Version of the program",
       json, "Version"},
      {RouteId::openApi, kAnyKind, "GET", "/openapi.json", "This description",
       json, "Description"},
      {RouteId::page, kAnyKind, "GET", "/", "Web page to try the model",
       "text/html; charset=utf-8", ""},
      {RouteId::pageFile, kAnyKind, "GET", "/page/{file}",
       "A style sheet or script of the page", "text/*", ""},
  };
  return list;
}

bool isAboutStored(const Route &route) {
  return route.id >= RouteId::response && route.id <= RouteId::chatMessages;
}

bool isAboutAdapters(const Route &route) {
  return route.id == RouteId::loadAdapter || route.id == RouteId::unloadAdapter;
}

bool isAboutTraining(const Route &route) {
  return route.id >= RouteId::createAdapter &&
         route.id <= RouteId::restoreAdapter;
}

/// Whether a path matches a pattern; `rest` is then the value of its {name}.
static bool isOf(std::string_view own, std::string_view path,
                 std::string_view &rest) {
  std::size_t brace = own.find('{');
  if (brace == own.npos)
    return own == path;
  std::string_view before = own.substr(0, brace),
                   after = own.substr(own.find('}') + 1);
  bool hasSlashes = own.ends_with("{model}");
  if (!path.starts_with(before) || !path.ends_with(after) ||
      path.size() <= before.size() + after.size())
    return false;
  rest = path.substr(before.size(), path.size() - before.size() - after.size());
  return hasSlashes || rest.find('/') == rest.npos;
}

RouteMatch findRoute(std::string_view method, std::string_view path) {
  RouteMatch match;
  for (const Route &route : routes()) {
    std::string_view rest;
    if (!isOf(route.path, path, rest))
      continue;
    if (route.method == method)
      return {&route, rest, {}};
    if (!match.allowed.empty())
      match.allowed += ", ";
    match.allowed += route.method == "GET" ? "GET, HEAD" : route.method;
  }
  return match;
}

std::string percentDecoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    if (text[i] == '%' && i + 2 < text.size()) {
      const char *begin = text.data() + i + 1;
      auto [end, code] = std::from_chars(begin, begin + 2, byte, 16);
      if (code == std::errc() && end == begin + 2) {
        decoded += char(byte);
        i += 2;
        continue;
      }
    }
    decoded += text[i];
  }
  return decoded;
}

std::string base64Decoded(std::string_view text) {
  constexpr std::string_view alphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string decoded;
  std::uint32_t bits = 0;
  int count = 0; // of bits that no byte has yet
  for (char digit : text) {
    std::size_t value = alphabet.find(digit);
    if (value == std::string_view::npos)
      break;
    bits = bits << 6 | std::uint32_t(value);
    if ((count += 6) < 8)
      continue;
    count -= 8;
    decoded += char(bits >> count & 0xFF);
  }
  return decoded;
}

} // namespace tessera::serve
