// The draft model of speculative decoding (`tessera serve --draft`).
#pragma once
#include "compiler/api/OpenedModel.h"
#include "runtime/infer/DecodePrograms.h"

#include <memory>
#include <optional>
#include <string>

namespace tessera {

/// Errors begin with "--draft PLACE: ".
class DraftSource {
public:
  /// Reads the model at `place`, for the device and, on a CPU, the threads of
  /// `choice`. An error if it has other tokens than `tokenizer`.
  Status read(const std::string &place, const ModelChoice &choice,
              const tokenizer::Tokenizer &tokenizer);
  /// Opens it to propose tokens for a model of this shape.
  Status open(const DecoderShape &shape, const TextSink &note);
  /// After open().
  PagedModel &model() { return *programs; }

private:
  Status find(const ModelChoice &choice, const tokenizer::Tokenizer &tokenizer);
  Status prepare(const DecoderShape &shape, const TextSink &note);
  Status named(const Status &status) const;

  std::string place;
  OpenedModel opened;
  bool isCompiledHere = false;
  int64_t choices = 0;
  std::unique_ptr<DecodePrograms> programs; ///< of `opened`
};

} // namespace tessera
