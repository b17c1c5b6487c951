#include "runtime/infer/engine/ScheduledSequence.h"

namespace tessera {

StatusOr<const TokenMask *> ScheduledSequence::allowed() {
  if (!request.guide)
    return nullptr;
  return request.guide->allowed();
}

// A draft token has not been chosen yet. The rows after it can be sampled by
// the model only if they depend on it through their logits alone.
bool ScheduledSequence::addSamplings(int64_t changes, int64_t choices,
                                     std::vector<TokenSampling> &samplings) {
  if (!drafts.empty() && (request.guide || sampler.remembers()))
    return false;
  if (isComplete()) // nothing will be chosen
    return false;
  auto mask = allowed();
  if (!mask.ok()) // draw() reports it
    return false;
  for (size_t row = 0; row <= drafts.size(); ++row) {
    auto sampling = sampler.sampling(
        changes, choices, uint64_t(result.generatedTokens) + row, *mask);
    if (!sampling)
      return false;
    samplings.push_back(*sampling);
  }
  return true;
}

StatusOr<int32_t> ScheduledSequence::draw(const PagedModel &model, int64_t row,
                                          int64_t choices,
                                          FinishReason &failure) {
  failure = FinishReason::form;
  StatusOr<int32_t> token = 0;
  if (isSampled) {
    token = sampledToken(model.token(row));
  } else {
    auto mask = allowed();
    if (!mask.ok())
      return mask.status();
    token = sampler.sample(model.logits(row).first(size_t(choices)),
                           uint64_t(result.generatedTokens), *mask);
  }
  if (!token.ok()) {
    failure = FinishReason::error;
    return token;
  }
  if (request.guide && !stopsAt(*token))
    TESSERA_RETURN_IF_ERROR(request.guide->accept(*token));
  tokens.push_back(*token);
  sampler.saw(*token);
  return token;
}

} // namespace tessera
