// Answers that were stored: how they are asked for again, listed, changed,
// forgotten and gone on from.
#pragma once
#include "runtime/serve/AnswerStore.h"
#include "runtime/serve/StoredQuery.h"

#include <deque>

namespace tessera::serve {

/// The JSON of an answer to a route about what is stored. `id` is the path's,
/// `isModel` whether a name is one of the server's. The store loses what is to
/// be forgotten.
std::variant<std::string, ApiError>
answerStored(RouteId route, const std::string &id, const StoredQuery &query,
             std::string_view body, bool isModel, AnswerStore &store);

/// What is not there.
ApiError notStored(RouteId route, const std::string &id);

/// What is read again for every response that goes on from another: as much as
/// a body has.
inline constexpr std::size_t kMaxTalkBytes = std::size_t(4) << 20;

/// Puts what `previousId` names before the request's own messages and items.
Problem goOn(ApiRequest &request, AnswerStore &store);

/// Whether what is to run in the background fits beside what runs already.
Problem checkRoom(const ApiRequest &request, const AnswerStore &store);

/// Gives ids to items that have none.
void numberItems(ApiRequest &request, std::string_view id);

/// One that nobody drafts: of a server without keys it is all that an answer
/// is kept by.
std::string newAnswerId(Endpoint endpoint);

std::string storeMetrics(const std::deque<AnswerStore> &stores);

} // namespace tessera::serve
