// GROUP BY keys of any kind as codes: the client library's EncodeKeys of columns that Python holds.
#ifndef REDUCED_CLIENT_PYTHON_SRC_KEYS_H_
#define REDUCED_CLIENT_PYTHON_SRC_KEYS_H_

#include <nanobind/nanobind.h>

#include <string>

namespace reduced::python {

// The codes, how many groups there are and the first row of each; reduced/_core.pyi says what a column is. Runs without
// the GIL, but for columns of objects, whose text it copies first. The arrays must not change meanwhile. TypeError: a
// column or an object in it is of another type; else the errors of EncodeKeys.
nanobind::tuple EncodeKeys(const nanobind::list& columns, bool sort, const std::string& missing);

}  // namespace reduced::python

#endif  // REDUCED_CLIENT_PYTHON_SRC_KEYS_H_
