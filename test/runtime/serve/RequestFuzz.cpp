// libFuzzer target: whatever the bytes, the body of a request, and the query of
// one about what is stored, is read or refused with one line of valid JSON, and
// what is read keeps its bounds. What is kept of a request can be read again.
#include "runtime/serve/Embeddings.h"
#include "runtime/serve/Ranking.h"
#include "runtime/serve/StoredAnswers.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>

#include <nlohmann/json.hpp>

using namespace tessera;
using namespace tessera::serve;

static void require(bool truth) {
  if (!truth)
    std::abort();
}

static void checkRequest(const ApiRequest &request) {
  // A response may have no input.
  if (request.endpoint != Endpoint::responses) {
    require(request.prompts.empty() != request.messages.empty());
  }
  require(request.prompts.empty() || request.messages.empty());
  require(request.n >= 1 && request.n <= kMaxChoices);
  require(int64_t(request.prompts.size()) <= kMaxChoices);
  require(int64_t(request.stop.size()) <= kMaxStops);
  require(!request.maxTokens || *request.maxTokens >= 0);
  require(!request.logprobs ||
          (*request.logprobs >= 0 && *request.logprobs <= 20));
  require(checkSampling(request.sampling).ok());
  for (const PromptInput &prompt : request.prompts)
    if (const auto *tokens = std::get_if<std::vector<int32_t>>(&prompt))
      for (int32_t token : *tokens)
        require(token >= 0);
}

static void checkEmbeddings(const EmbeddingsRequest &request) {
  require(!request.model.empty() && !request.inputs.empty());
  require(request.inputs.size() <= kMaxInputs);
  require(!request.dimensions || *request.dimensions >= 1);
  for (const PromptInput &input : request.inputs)
    if (const auto *tokens = std::get_if<std::vector<int32_t>>(&input))
      require(!tokens->empty());
}

/// A response goes on from what was kept of the request.
static void checkItems(ApiRequest request) {
  require(request.store || request.items.empty());
  if (request.endpoint != Endpoint::responses || !request.store)
    return;
  numberItems(request, "resp_1");
  auto record = std::make_shared<ResponseRecord>();
  record->status = ResponseStatus::completed;
  record->output.push_back({.kind = OutputKind::message,
                            .id = "msg_1",
                            .callId = {},
                            .name = {},
                            .text = "x",
                            .ends = {}});
  AnswerStore store({.count = 1, .bytes = std::size_t(1) << 30});
  store.put({"resp_1", request.items, {}, {}, record});
  ApiRequest next;
  next.endpoint = Endpoint::responses;
  next.previousId = "resp_1";
  require(!goOn(next, store));
  require(next.messages.size() ==
          request.messages.size() + 1 - std::size_t(!!request.instructions));
}

static void checkQuery(RouteId route, std::string_view query) {
  auto parsed = parseQuery(route, query);
  if (const auto *error = std::get_if<ApiError>(&parsed)) {
    require(error->message.find('\n') == std::string::npos);
    require(nlohmann::json::parse(error->json(), nullptr, false).is_object());
    return;
  }
  const auto &read = std::get<StoredQuery>(parsed);
  require(read.limit >= 0 && read.limit <= 100 && read.metadata.size() <= 16);
  require(!read.startingAfter || *read.startingAfter >= 0);
}

static void checkError(const ApiError &error) {
  require(error.message.find('\n') == std::string::npos);
  require(nlohmann::json::parse(error.json(), nullptr, false).is_object());
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view body(reinterpret_cast<const char *>(data), size);
  for (Endpoint endpoint :
       {Endpoint::completions, Endpoint::chat, Endpoint::responses,
        Endpoint::tokenize, Endpoint::detokenize, Endpoint::messages,
        Endpoint::countTokens}) {
    auto parsed = parseApiRequest(body, endpoint);
    if (const auto *request = std::get_if<ApiRequest>(&parsed)) {
      checkRequest(*request);
      checkItems(*request);
      continue;
    }
    checkError(std::get<ApiError>(parsed));
  }
  auto parsed = parseEmbeddingsRequest(body);
  if (const auto *request = std::get_if<EmbeddingsRequest>(&parsed))
    checkEmbeddings(*request);
  else
    checkError(std::get<ApiError>(parsed));
  for (Endpoint endpoint : {Endpoint::rerank, Endpoint::score}) {
    auto ranking = parseRankingRequest(body, endpoint);
    if (const auto *request = std::get_if<RankingRequest>(&ranking))
      require(!request->firsts.empty() && !request->seconds.empty());
    else
      checkError(std::get<ApiError>(ranking));
  }
  for (RouteId route : {RouteId::response, RouteId::inputItems,
                        RouteId::listChats, RouteId::chatMessages})
    checkQuery(route, body);
  return 0;
}
