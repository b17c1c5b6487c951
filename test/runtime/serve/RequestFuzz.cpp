// libFuzzer target: whatever the bytes, the body of a request is read or
// refused with one line of valid JSON, and what is read keeps its bounds.
#include "runtime/serve/Embeddings.h"

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
  require(!request.model.empty());
  require(request.prompts.empty() != request.messages.empty());
  require(request.n >= 1 && request.n <= kMaxChoices);
  require(int64_t(request.prompts.size()) <= kMaxChoices);
  require(int64_t(request.stop.size()) <= kMaxStops);
  require(!request.maxTokens || *request.maxTokens >= 1);
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

static void checkError(const ApiError &error) {
  require(error.message.find('\n') == std::string::npos);
  require(nlohmann::json::parse(error.json(), nullptr, false).is_object());
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view body(reinterpret_cast<const char *>(data), size);
  for (Endpoint endpoint :
       {Endpoint::completions, Endpoint::chat, Endpoint::responses}) {
    auto parsed = parseApiRequest(body, endpoint);
    if (const auto *request = std::get_if<ApiRequest>(&parsed)) {
      checkRequest(*request);
      continue;
    }
    checkError(std::get<ApiError>(parsed));
  }
  auto parsed = parseEmbeddingsRequest(body);
  if (const auto *request = std::get_if<EmbeddingsRequest>(&parsed))
    checkEmbeddings(*request);
  else
    checkError(std::get<ApiError>(parsed));
  return 0;
}
