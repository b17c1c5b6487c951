// What a model must read and compute for a token, by any implementation.
#pragma once
#include "models/ModelSpec.h"
#include "runtime/bench/InferBench.h"
#include "runtime/train/SessionModel.h"

namespace tessera {

/// Each matrix is read once per decoded token, and is applied to every token of
/// a prompt. Of experts only the routed ones count; the head is applied only to
/// the prompt's last token.
bench::InferCost costOf(const models::ModelSpec &spec,
                        const SessionModel &model, const DecoderShape &shape,
                        int64_t prompt, int64_t batch);

} // namespace tessera
