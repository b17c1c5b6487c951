// The most probable next tokens of packed documents by a teacher, from which
// distillation learns.
#pragma once
#include "runtime/data/TeacherShard.h"
#include "runtime/generate/ShardDocuments.h"

namespace tessera {

/// The classes of softmax(logits / temperature): `tokens` are the most probable
/// tokens, the most probable first and of equal ones the lower. `logProbs`, one
/// more, has their log-probabilities and that of all other tokens together,
/// each at least kLeastLogProb. False if the logits are not finite.
bool topClasses(std::span<const float> logits, double temperature,
                std::span<int32_t> tokens, std::span<float> logProbs);

/// Reads every document of `folder` alone and writes a TeacherShard for each of
/// its shards. `facts.vocabSize` is the model's.
Status scoreTeacher(const std::string &folder, PagedModel &model,
                    TeacherFacts facts, const ReportDocuments &report);

} // namespace tessera
