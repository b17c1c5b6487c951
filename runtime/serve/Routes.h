// The server's paths, for dispatching requests and for /openapi.json.
#pragma once
#include "runtime/serve/Api.h"

#include <span>
#include <string>
#include <string_view>

namespace tessera::serve {

enum class RouteId : uint8_t {
  page,
  pageFile,
  completions,
  chat,
  responses,
  embeddings,
  rerank,
  rerankV2,
  rerankPlain,
  score,
  scoreV1,
  tokenize,
  detokenize,
  messages,
  countTokens,
  response,
  deleteResponse,
  cancelResponse,
  inputItems,
  listChats,
  storedChat,
  updateChat,
  deleteChat,
  chatMessages,
  loadAdapter,
  unloadAdapter,
  createAdapter,
  trainedAdapters,
  deleteAdapter,
  forwardBackward,
  optimStep,
  saveAdapter,
  restoreAdapter,
  models,
  model,
  health,
  metrics,
  version,
  openApi,
};

/// What a model computes.
enum class ModelKind : uint8_t { generates = 1, embeds = 2, ranks = 4 };
inline constexpr unsigned kGenerates = unsigned(ModelKind::generates),
                          kEmbeds = unsigned(ModelKind::embeds),
                          kRanks = unsigned(ModelKind::ranks),
                          kAnyKind = kGenerates | kEmbeds | kRanks;

struct Route {
  RouteId id;
  unsigned kinds; ///< of models that support it; others return an error
  std::string_view method;
  /// "{model}" at the end matches anything, including slashes; any other name
  /// in braces matches anything without slashes.
  std::string_view path;
  std::string_view summary;
  std::string_view type;   ///< of the body of a 200; "text/*": several
  std::string_view schema; ///< its name in /openapi.json; empty: plain text
  std::optional<Endpoint> body = {}; ///< the fields of a POST
  std::string_view asks = {}; ///< name of the schema of another request body
};

std::span<const Route> routes();

inline bool isServed(const Route &route, ModelKind kind) {
  return (route.kinds & unsigned(kind)) != 0;
}

/// Whether it is about stored answers.
bool isAboutStored(const Route &route);

/// Whether it loads or unloads adapters.
bool isAboutAdapters(const Route &route);

/// Whether it trains adapters, or is about those that are trained.
bool isAboutTraining(const Route &route);

/// The route of a path.
struct RouteMatch {
  const Route *route = nullptr;
  std::string_view rest; ///< value of {name}, still encoded
  std::string allowed;   ///< the path's methods, if the method is another one
};
RouteMatch findRoute(std::string_view method, std::string_view path);

/// Decodes %XX; invalid codes stay as they are.
std::string percentDecoded(std::string_view text);
/// Decodes base64 up to the first byte that is not in its alphabet, or to the
/// padding.
std::string base64Decoded(std::string_view text);

} // namespace tessera::serve
