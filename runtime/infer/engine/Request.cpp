#include "runtime/infer/engine/Request.h"

namespace tessera {

std::string_view name(FinishReason reason) {
  switch (reason) {
  case FinishReason::stop:
    return "stop";
  case FinishReason::length:
    return "length";
  case FinishReason::cancelled:
    return "cancelled";
  case FinishReason::deadline:
    return "deadline";
  case FinishReason::error:
    return "error";
  case FinishReason::form:
    return "form";
  }
  return "error";
}

Status checkLength(int64_t prompt, int64_t tokens, const DecoderShape &shape) {
  if (prompt <= shape.context && tokens <= shape.context - prompt)
    return Status::success();
  return Status::error("the prompt has {} tokens and {} are to be generated, "
                       "together they must be at most the context of {}",
                       prompt, tokens, shape.context);
}

Status checkRequest(const EngineRequest &request, const DecoderShape &shape) {
  if (request.prompt.empty())
    return Status::error("the prompt is empty");
  for (int32_t token : request.prompt)
    if (token < 0 || token >= shape.vocab)
      return Status::error("token {} of the prompt is outside the vocabulary "
                           "of {}",
                           token, shape.vocab);
  auto prompt = int64_t(request.prompt.size());
  if (request.maxTokens < 0)
    return Status::error(
        "the number of tokens to generate must be at least 0, got: {}",
        request.maxTokens);
  TESSERA_RETURN_IF_ERROR(checkLength(prompt, request.maxTokens, shape));
  TESSERA_RETURN_IF_ERROR(checkPrompt(prompt, shape));
  if (request.scoresPrompt && shape.hasWholePrompts)
    return Status::error("log-probabilities of a prompt are not supported "
                         "with attention.prompts: bidirectional, where its "
                         "tokens see each other");
  if (request.scoresPrompt && !request.logprobs)
    return Status::error("a prompt is scored by logprobs, which are not "
                         "requested");
  if (request.adapter && request.adapter->slot >= shape.adapters)
    return Status::error("the model has {} slots for adapters, the request "
                         "uses slot {}",
                         shape.adapters, request.adapter->slot);
  int64_t pages = (prompt + request.maxTokens + shape.page - 1) / shape.page;
  if (pages > shape.pages)
    return Status::error(
        "{} tokens need {} pages of {} tokens, the KV cache has "
        "{}",
        prompt + request.maxTokens, pages, shape.page, shape.pages);
  return checkSampling(request.sampling);
}

} // namespace tessera
