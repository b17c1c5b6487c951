#include "runtime/serve/Routes.h"

#include <charconv>

namespace tessera::serve {

std::span<const Route> routes() {
  constexpr std::string_view json = "application/json";
  static constexpr Route list[] = {
      {RouteId::completions, kGenerates, "POST", "/v1/completions",
       "Continue a text or several", json, "Completion", Endpoint::completions},
      {RouteId::chat, kGenerates, "POST", "/v1/chat/completions",
       "Answer a chat", json, "ChatCompletion", Endpoint::chat},
      {RouteId::responses, kGenerates, "POST", "/v1/responses",
       "Answer a text or a chat", json, "Response", Endpoint::responses},
      {RouteId::response, kGenerates, "GET", "/v1/responses/{response_id}",
       "A stored response, also as its events", json, "Response"},
      {RouteId::deleteResponse, kGenerates, "DELETE",
       "/v1/responses/{response_id}", "Forget it", json, "Deleted"},
      {RouteId::cancelResponse, kGenerates, "POST",
       "/v1/responses/{response_id}/cancel",
       "End what is made in the background", json, "Response"},
      {RouteId::inputItems, kGenerates, "GET",
       "/v1/responses/{response_id}/input_items", "What it answers", json,
       "InputItems"},
      {RouteId::listChats, kGenerates, "GET", "/v1/chat/completions",
       "Stored chats", json, "ChatCompletions"},
      {RouteId::storedChat, kGenerates, "GET",
       "/v1/chat/completions/{completion_id}", "One of them", json,
       "StoredChatCompletion"},
      {RouteId::updateChat, kGenerates, "POST",
       "/v1/chat/completions/{completion_id}", "Replace its metadata", json,
       "StoredChatCompletion", std::nullopt, "MetadataRequest"},
      {RouteId::deleteChat, kGenerates, "DELETE",
       "/v1/chat/completions/{completion_id}", "Forget it", json, "Deleted"},
      {RouteId::chatMessages, kGenerates, "GET",
       "/v1/chat/completions/{completion_id}/messages",
       "The messages that it answers", json, "StoredMessages"},
      {RouteId::embeddings, kEmbeds, "POST", "/v1/embeddings",
       "The vectors of texts", json, "Embeddings", Endpoint::embeddings},
      {RouteId::models, kAnyKind, "GET", "/v1/models",
       "The model under each of its names", json, "Models"},
      {RouteId::model, kAnyKind, "GET", "/v1/models/{model}", "One of them",
       json, "Model"},
      {RouteId::health, kAnyKind, "GET", "/health",
       "Whether the engine does its work", json, "Health"},
      {RouteId::metrics, kAnyKind, "GET", "/metrics", "Prometheus' text",
       "text/plain; version=0.0.4", ""},
      {RouteId::version, kAnyKind, "GET", "/version", "Of the program", json,
       "Version"},
      {RouteId::openApi, kAnyKind, "GET", "/openapi.json", "This description",
       json, "Description"},
      {RouteId::page, kAnyKind, "GET", "/", "A page to try the model",
       "text/html; charset=utf-8", ""},
  };
  return list;
}

bool isAboutStored(const Route &route) {
  return route.id >= RouteId::response && route.id <= RouteId::chatMessages;
}

/// Whether a path is of that form; then `rest` is what stands for the name.
static bool isOf(std::string_view own, std::string_view path,
                 std::string_view &rest) {
  std::size_t brace = own.find('{');
  if (brace == own.npos)
    return own == path;
  std::string_view before = own.substr(0, brace),
                   behind = own.substr(own.find('}') + 1);
  bool hasSlashes = own.ends_with("{model}");
  if (!path.starts_with(before) || !path.ends_with(behind) ||
      path.size() <= before.size() + behind.size())
    return false;
  rest =
      path.substr(before.size(), path.size() - before.size() - behind.size());
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
