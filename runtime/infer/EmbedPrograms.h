// The programs `embed_BxT` of an artifact that was compiled from an encoder, a
// cross-encoder or a reward model with --mode infer. A score is an embedding of
// one element.
#pragma once
#include "runtime/hal/Session.h"
#include "runtime/infer/EmbeddingModel.h"

#include <memory>

namespace tessera {

class EmbedPrograms final : public EmbeddingModel {
public:
  /// Checks that the session's programs have the inputs and outputs that
  /// embedding needs. The session must outlive this. The caller fills the
  /// weights before the first sequence, and checks tokens against the
  /// vocabulary.
  static StatusOr<std::unique_ptr<EmbedPrograms>> create(hal::Session &session,
                                                         int64_t vocab);

  const EmbeddingShape &shape() const override { return sizes; }
  Status embed(std::span<const TokenSequence> sequences,
               std::span<float> vectors) override;

private:
  explicit EmbedPrograms(hal::Session &session) : session(session) {}
  Status readShape(int64_t vocab);
  Status checkPorts(int64_t batch, int64_t tokens);
  /// Runs the program for a batch of `batch`; rows without a sequence are
  /// empty.
  Status runOne(std::span<const TokenSequence> sequences, int64_t batch,
                int64_t tokens, std::span<float> vectors);

  hal::Session &session;
  EmbeddingShape sizes;
  std::string output;    ///< "embeddings" or "scores"
  bool hasPairs = false; ///< the input "second_begins"
  std::vector<int32_t> ids, lengths, secondBegins;
  std::vector<float> results; ///< [batch, width]
};

} // namespace tessera
