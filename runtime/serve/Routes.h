// The paths that the server answers: what dispatches requests, and what
// /openapi.json lists.
#pragma once
#include "runtime/serve/Api.h"

#include <span>
#include <string>
#include <string_view>

namespace tessera::serve {

enum class RouteId : uint8_t {
  page,
  completions,
  chat,
  responses,
  embeddings,
  response,
  deleteResponse,
  cancelResponse,
  inputItems,
  listChats,
  storedChat,
  updateChat,
  deleteChat,
  chatMessages,
  models,
  model,
  health,
  metrics,
  version,
  openApi,
};

/// What a model does with a text.
enum class ModelKind : uint8_t { generates = 1, embeds = 2 };
inline constexpr unsigned kGenerates = unsigned(ModelKind::generates),
                          kEmbeds = unsigned(ModelKind::embeds),
                          kAnyKind = kGenerates | kEmbeds;

struct Route {
  RouteId id;
  unsigned kinds; ///< of models that answer it; others say why they do not
  std::string_view method;
  /// An end "{model}" stands for anything, slashes included, any other name in
  /// braces for anything without.
  std::string_view path;
  std::string_view summary;
  std::string_view type;   ///< of what it answers with 200
  std::string_view schema; ///< its name in /openapi.json; none: a text
  std::optional<Endpoint> body = {}; ///< whose fields a POST has
  std::string_view asks = {};        ///< the name of another body's schema
};

std::span<const Route> routes();

inline bool isServed(const Route &route, ModelKind kind) {
  return (route.kinds & unsigned(kind)) != 0;
}

/// Whether it is about answers that were stored.
bool isAboutStored(const Route &route);

/// What a path asks for.
struct RouteMatch {
  const Route *route = nullptr;
  std::string_view rest; ///< what stands for the name, still encoded
  std::string allowed;   ///< the path's methods where it is another one
};
RouteMatch findRoute(std::string_view method, std::string_view path);

/// Bytes for their %XX; what is no such code stays.
std::string percentDecoded(std::string_view text);
/// Up to the first byte that is none of its 64, or to the padding.
std::string base64Decoded(std::string_view text);

} // namespace tessera::serve
