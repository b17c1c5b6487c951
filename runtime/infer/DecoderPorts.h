// What the programs of a compiled model that decodes take and give: the sizes
// that they were compiled for, read from their ports and states.
#pragma once
#include "runtime/hal/Session.h"
#include "runtime/infer/PagedModel.h"

#include <string>

namespace tessera {

/// An output of programs with inference.numerics: training.
inline constexpr std::string_view kLogSums = "log_sums";

struct DecoderPorts {
  DecoderShape shape;
  std::string prefill;      ///< the program that reads prompts
  int64_t tableColumns = 0; ///< of block tables
  int64_t allowedWords = 0; ///< of a mask of tokens
  bool hasLogSums = false;
};

/// Checks that the session's programs have the inputs, outputs and states that
/// decoding needs.
StatusOr<DecoderPorts> readDecoderPorts(const hal::Session &session);

} // namespace tessera
