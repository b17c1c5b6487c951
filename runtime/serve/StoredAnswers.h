// Stored responses and chats: retrieving, listing, changing, deleting and
// continuing them.
#pragma once
#include "runtime/serve/AnswerStore.h"
#include "runtime/serve/StoredQuery.h"

#include <deque>

namespace tessera::serve {

/// The JSON for a route about stored answers. `id` is the path's; `isModel`
/// checks a name of the model. Deletes from the store where the route says so.
std::variant<std::string, ApiError>
answerStored(RouteId route, const std::string &id, const StoredQuery &query,
             std::string_view body, bool isModel, AnswerStore &store);

/// The error of a missing answer.
ApiError notStored(RouteId route, const std::string &id);

/// The limit of a conversation that is continued: that of a body.
inline constexpr std::size_t kMaxTalkBytes = std::size_t(4) << 20;

/// Puts the messages and items of `previousId` before the request's own.
Problem goOn(ApiRequest &request, AnswerStore &store);

/// Whether a background response fits next to those that run already.
Problem checkRoom(const ApiRequest &request, const AnswerStore &store);

/// Gives ids to items without one.
void numberItems(ApiRequest &request, std::string_view id);

/// A random id that cannot be predicted: on a server without keys it alone
/// protects an answer.
std::string newAnswerId(Endpoint endpoint);

std::string storeMetrics(const std::deque<AnswerStore> &stores);

} // namespace tessera::serve
