"""Names and archives of FLARE jobs, for tests."""

import io
import zipfile

JOB = "0a1b2c3d-1111-4222-8333-0123456789ab"
OTHER_JOB = "ffffffff-1111-4222-8333-0123456789ab"


def packed(*files, size=10):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in files:
            archive.writestr(name, b" " * size)
    return out.getvalue()
