// BERT's forward pass and what makes one vector of it, as plain loops in fp64,
// without any of the builders' code.
#pragma once
#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "models/Recipe.h"

namespace tessera::models {

class ReferenceEncoder {
public:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>; ///< [tokens][width]

  ReferenceEncoder(const ModelSpec &spec, std::map<std::string, Row> weights)
      : spec(spec), weights(std::move(weights)) {}

  /// What the last layer gives, [tokens][hidden].
  Rows states(const std::vector<int> &tokens) const {
    Rows x;
    for (size_t t = 0; t < tokens.size(); ++t) {
      Row row = entry("embeddings.word_embeddings.weight", size_t(tokens[t]));
      Row position = entry("embeddings.position_embeddings.weight", t),
          type = entry("embeddings.token_type_embeddings.weight", 0);
      for (size_t i = 0; i < row.size(); ++i)
        row[i] += position[i] + type[i];
      x.push_back(normed(row, "embeddings.LayerNorm"));
    }
    for (int64_t layer = 0; layer < spec.layers; ++layer)
      x = runLayer(x, "encoder.layer." + std::to_string(layer) + ".");
    return x;
  }

  Row vector(const std::vector<int> &tokens, Pooling pooling,
             Normalize normalize) const {
    Rows x = states(tokens);
    Row y = x[0];
    for (size_t t = 1; t < x.size() && pooling != Pooling::Cls; ++t)
      for (size_t i = 0; i < y.size(); ++i)
        y[i] =
            pooling == Pooling::Max ? std::max(y[i], x[t][i]) : y[i] + x[t][i];
    double count = double(tokens.size()), squares = 0;
    for (double &each : y) {
      if (pooling == Pooling::Mean)
        each /= count;
      if (pooling == Pooling::MeanSqrt)
        each /= std::sqrt(count);
      squares += each * each;
    }
    if (normalize == Normalize::L2)
      for (double &each : y)
        each /= std::sqrt(squares);
    return y;
  }

private:
  const Row &weight(const std::string &name) const { return weights.at(name); }
  Row entry(const std::string &table, size_t index) const {
    auto begin = weight(table).begin() + int64_t(index) * spec.hidden;
    return Row(begin, begin + spec.hidden);
  }
  Row normed(const Row &x, const std::string &name) const {
    double mean = 0, variance = 0;
    for (double each : x)
      mean += each / double(x.size());
    for (double each : x)
      variance += (each - mean) * (each - mean) / double(x.size());
    Row y;
    for (size_t i = 0; i < x.size(); ++i)
      y.push_back((x[i] - mean) / std::sqrt(variance + spec.normEps) *
                      weight(name + ".weight")[i] +
                  weight(name + ".bias")[i]);
    return y;
  }
  Row linear(const Row &x, const std::string &name) const {
    Row y = weight(name + ".bias");
    for (size_t i = 0; i < y.size(); ++i)
      for (size_t j = 0; j < x.size(); ++j)
        y[i] += weight(name + ".weight")[i * x.size() + j] * x[j];
    return y;
  }
  Rows attention(const Rows &x, const std::string &prefix) const {
    Rows q, k, v, result;
    for (const Row &row : x) {
      q.push_back(linear(row, prefix + "query"));
      k.push_back(linear(row, prefix + "key"));
      v.push_back(linear(row, prefix + "value"));
    }
    for (size_t t = 0; t < x.size(); ++t) {
      Row out(size_t(spec.hidden), 0.0);
      for (int64_t head = 0; head < spec.heads; ++head) {
        int64_t first = head * spec.headDim;
        Row p;
        double sum = 0;
        for (size_t s = 0; s < x.size(); ++s) {
          double dot = 0;
          for (int64_t d = first; d < first + spec.headDim; ++d)
            dot += q[t][size_t(d)] * k[s][size_t(d)];
          p.push_back(std::exp(dot / std::sqrt(double(spec.headDim))));
          sum += p.back();
        }
        for (size_t s = 0; s < x.size(); ++s)
          for (int64_t d = first; d < first + spec.headDim; ++d)
            out[size_t(d)] += p[s] / sum * v[s][size_t(d)];
      }
      result.push_back(out);
    }
    return result;
  }
  double activated(double x) const {
    if (spec.activation == Activation::Relu)
      return std::max(x, 0.0);
    return x * 0.5 * (1 + std::erf(x / std::numbers::sqrt2)); // exact GELU
  }
  Rows runLayer(const Rows &x, const std::string &prefix) const {
    Rows mixed = attention(x, prefix + "attention.self."), result;
    for (size_t t = 0; t < x.size(); ++t) {
      Row row = linear(mixed[t], prefix + "attention.output.dense");
      for (size_t i = 0; i < row.size(); ++i)
        row[i] += x[t][i];
      row = normed(row, prefix + "attention.output.LayerNorm");
      Row inner = linear(row, prefix + "intermediate.dense");
      for (double &each : inner)
        each = activated(each);
      Row out = linear(inner, prefix + "output.dense");
      for (size_t i = 0; i < out.size(); ++i)
        out[i] += row[i];
      result.push_back(normed(out, prefix + "output.LayerNorm"));
    }
    return result;
  }

  const ModelSpec &spec;
  std::map<std::string, Row> weights;
};

} // namespace tessera::models
